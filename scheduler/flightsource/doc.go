// Package flightsource has the Flight SQL engines that are sources: those of the
// configuration, and those that CREATE SOURCE made, which name an entry of the
// configuration for everything secret. It has engines run the queries of jobs, keeps
// what they gave alive while jobs read it, and gives executors what they need to
// read it.
//
// It runs in the scheduler's process. Of a query it has the text, which it hands on
// and doesn't read; of an engine's answer it reads protobuf and an Arrow schema,
// within bounds. The rows never come here.
package flightsource
