package footer

import (
	"maps"
	"slices"
)

// Claim is what a manifest says of a file whose footer is read. What it says must
// be so; what it leaves out is found out.
type Claim struct {
	// Rows and Size are -1 when nothing is said.
	Rows, Size int64
	// Partition are the partition's values as texts, by the names of the partition
	// fields; nil is null. What isn't there isn't said.
	Partition map[string]*string
}

// Check holds the numbers of a footer against the claim, and the names of its
// partition values against those of the table. A file without rows is refused: it
// would only cost readers time.
func (c Claim) Check(f *Footer, fields []string) error {
	const hint = "Hand in what was written, or leave rows and size out."
	switch {
	case c.Size >= 0 && c.Size != f.Size:
		return Refuse(hint, "it has %d bytes, and the manifest says %d", f.Size, c.Size)
	case c.Rows >= 0 && c.Rows != f.Rows:
		return Refuse(hint, "it has %d rows, and the manifest says %d", f.Rows, c.Rows)
	case f.Rows == 0:
		return Refuse("Hand in only files with rows.", "it has no rows")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Partition)) {
		if !slices.Contains(fields, name) {
			return Refuse("Name partition values as the write context's partition fields are named.",
				"the manifest has a value of the partition field %.200q, and the table has no such field", name)
		}
	}
	return nil
}
