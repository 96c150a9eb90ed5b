// Package delta holds the parts of the Delta table format that executors and the
// scheduler must agree on to the last bit: types and schemas, partition values,
// paths, statistics, deletion vectors, column mapping, and which table features
// allow which operation.
//
// It is pure: no files, no network, no clock, and nothing of a log. Package
// catalog/delta reads and writes the log.
//
// Values are Go values of these types:
//
//	boolean  bool      date                      arrow.Date32 (days)
//	byte     int8      timestamp, timestamp_ntz  arrow.Timestamp (µs)
//	short    int16     string                    string
//	integer  int32     binary                    []byte
//	long     int64     decimal                   Decimal
//	float    float32   double                    float64
//
// What other writers left in a table is read with limits and never trusted: each
// decoder gives a value or an error that names the part, and no decoder panics.
package delta
