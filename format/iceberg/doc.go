// Package iceberg holds the parts of the Iceberg table format that executors
// and the scheduler must agree on to the last bit: types, single-value
// serialisation, partition transforms, partition paths, column metrics and
// the checks of untrusted file manifests.
//
// It is pure: no files, no network, no clock, and nothing of a catalog. Both
// sides call the same functions, so a partition value that an executor wrote
// and the one that the scheduler recomputes can't differ by implementation.
//
// Values that are not yet serialised are Go values of these types, the ones
// that iceberg-go's DataFileBuilder takes:
//
//	boolean    bool            timestamp[tz] iceberg.Timestamp (µs)
//	int        int32           string        string
//	long       int64           uuid          uuid.UUID
//	float      float32         fixed, binary []byte
//	double     float64         decimal       iceberg.Decimal
//	date       iceberg.Date    time          iceberg.Time (µs)
//
// Arrow arrays have the types of ArrowSchema; nothing here casts.
package iceberg
