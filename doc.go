// Package firn explains the structure of the repository; it has no code.
//
// Firn takes the files that many workers wrote and makes them one table
// version: one atomic commit to an Iceberg table, exactly once, by the only
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
//	scheduler           the service around it
//	scheduler/committer one owner a table: carries the commit machine's effects out
//	executor            task slots; executor/engine runs queries, executor/shuffle moves rows
//	sinks               Arrow batches to data files and file manifests
//	format/iceberg      types, transforms, bounds: pure, used on both sides
//	catalog             opens tables; catalog/iceberg is the driver
//	client, cmd/firn    how people use it
//
// The arrows between the packages are rules: layout_test.go checks them.
package firn
