// Package metrics counts what an executor does, for Prometheus.
//
// Names begin with firn_executor_. Labels have few values: no tables, jobs or keys.
package metrics
