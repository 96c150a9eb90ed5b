// Package plan holds the node types of Firn's plans.
//
// A logical plan has names and options as a client submitted them. A physical
// plan has bound operators with their partitioning:
//
//	source ▸ query ▸ exchange ▸ write ▸ root
//
// The root is the plan's top operator. Stages are cut at exchanges by package
// scheduler/planner; what an executor gets is a fragment: the operators between
// two exchanges, narrowed to one input partition.
//
// Nodes are plain values without behaviour, encoded as JSON with a kind
// (Encode, Decode), so that a task message can be read by a person.
package plan
