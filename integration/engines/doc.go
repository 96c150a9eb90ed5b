// Package engines has Spark and Ray write tables through the open write protocol, with
// the client of examples/python, while their tasks fail and their workers and drivers
// are killed. PyIceberg and delta-rs read what became of it.
package engines
