// Package flightsqltest is a Flight SQL server for tests, of the shape that
// distributed engines have: it runs a query while the caller waits or is polled,
// gives its rows in parts by tickets of many kinds of tempers, and stamps each row
// with the execution that it is of. It can also lie.
package flightsqltest
