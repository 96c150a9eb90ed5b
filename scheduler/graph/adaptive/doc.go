// Package adaptive decides how the input of a stage is cut into tasks once the
// sizes of what it reads are known: small partitions are merged, skewed ones are
// split, and nothing is made of partitions without rows.
//
// It is pure. What it decides keeps the order: read one after the other, the tasks
// of a layout read what the static tasks would have, partition by partition and in
// each of them producer by producer. So no row is lost or doubled whatever is merged
// or split, and rows come out in the same order.
package adaptive
