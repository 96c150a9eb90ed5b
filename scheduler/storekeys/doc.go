// Package storekeys gives the executors of a job keys to object stores: scoped to
// what the job writes and reads, for a time, and anew as long as the job runs.
//
// A plan that goes to executors has no keys in it, only a name for each store that
// it needs (objstore.KeyCredential). An executor asks the scheduler for the keys of
// that name when it runs an attempt of the job, and again before they end.
package storekeys
