// Package integration tests whole clusters: processes of bin/firn, real data and
// readers that nobody here wrote. It is imported by nothing.
//
// Its tests have build tags: `integration` (make integration) and `interop`
// (make interop and make interop-engines, which need Python packages). Package
// process starts the processes, package bench compares speeds.
package integration
