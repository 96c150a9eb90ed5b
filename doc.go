// Package firn explains the structure of the repository; it has no code.
//
// Firn takes the files that many workers wrote and makes them one table
// version: one atomic commit to an Iceberg or Delta table, exactly once, by the only
// process that holds the catalog's credentials. docs/explanation/design.md is
// the longer story.
//
// Read the code in this order:
//
//	commit              vocabulary and the commit operator, a pure step machine
//	plan                the plan's node types
//	sql                 statements to plans
//	scheduler/planner   splits the root off and cuts stages
//	scheduler/graph     the job graph, a pure state machine
//	scheduler/cached    cached frames, a pure state machine
//	scheduler           the service around it
//	scheduler/committer one owner a table: carries the commit machine's effects out
//	scheduler/rest      REST; scheduler/flightsqlserver is the door for Flight SQL clients
//	scheduler/writes    the open write protocol, for executors of other engines
//	executor            task slots; executor/engine runs queries, executor/shuffle moves rows
//	sinks               Arrow batches to data files and file manifests
//	format/iceberg      types, transforms, bounds: pure, used on both sides; format/delta too
//	format/footer       Parquet footers that others wrote, for both formats
//	catalog             opens tables; catalog/iceberg and catalog/delta are the drivers
//	internal/flightsql  Flight SQL engines: asked by the scheduler, read by executors
//	client, cmd/firn    how people use it
//
// The arrows between the packages are rules: layout_test.go checks them.
package firn
