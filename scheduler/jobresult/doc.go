// Package jobresult is what all doors to a scheduler need of a job beside its status:
// waiting for its end, what that end means to whoever sent the statement, and its
// rows. Package rest and package flightsqlserver serve it over HTTP and Flight SQL.
package jobresult
