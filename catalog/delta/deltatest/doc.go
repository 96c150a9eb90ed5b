// Package deltatest unpacks the Delta tables of others that tests read.
package deltatest
