// Package metrics counts what a scheduler does, for Prometheus.
//
// Names begin with firn_. Labels have few values: no tables, jobs or keys.
package metrics
