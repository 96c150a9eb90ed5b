// Package cluster builds a whole Firn cluster inside one process: a scheduler
// and executors that talk over loopback gRPC and Arrow Flight exactly as separate
// processes do. It serves `firn dev`, `firn sql --dir` and tests.
//
// What one process can't have is the credential boundary: here the executors
// share memory with the scheduler, which holds the catalogs' secrets. Those who
// need the boundary run `firn scheduler` and `firn executor`.
package cluster
