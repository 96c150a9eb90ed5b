// Package flightsqlserver is the door by which Flight SQL clients run statements:
// ADBC, JDBC, and Go's database/sql over arrow-go's driver. Firn reads other engines'
// Flight SQL with package internal/flightsql.
//
// It is a thin way to what the gRPC service for clients says and does: statements,
// waiting, cancelling and rows are that service's, so that the doors can't differ.
// Callers are let in by the same tokens and certificates.
//
// A statement runs at GetFlightInfo or DoPut, exactly once; reading its rows with
// DoGet, however often, runs nothing. Handles hold no state here: a prepared
// statement's is its text, and a ticket names a job. Only what the catalog answers at
// once (SHOW, DESCRIBE, EXPLAIN) is kept for a while, within a bound.
package flightsqlserver
