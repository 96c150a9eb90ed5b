package committest

import (
	"fmt"

	"github.com/firn-project/firn/commit"
)

// NewUnit makes a unit for the in-memory table as it is now, of files with rows
// rows each.
func NewUnit(c *Catalog, key, job string, files, rows int) commit.Unit {
	var v version
	c.locked(func() { v = c.now })
	s := commit.UnitSpec{
		Key: key, JobID: job, Table: Name, TableUUID: v.uuid, Operation: commit.OperationAppend,
		SchemaID: v.schemaID, SpecID: v.specID, Prefix: "mem://t/data/" + job + "/", Tasks: 1,
	}
	for i := range files {
		s.Files = append(s.Files, commit.File{
			Path: fmt.Sprintf("%s1-0-a-%s-%d.parquet", s.Prefix, job, i), Format: "PARQUET", Attempt: "a-" + job,
			SchemaID: v.schemaID, SpecID: v.specID, Rows: int64(rows), Size: int64(100 + rows),
		})
	}
	return commit.NewUnit(s)
}

// Parent is the parent of a snapshot, empty when it has none.
func (c *Catalog) Parent(id string) (parent string) {
	c.locked(func() { parent = c.now.snapshots[id].parent })
	return parent
}

// EditFile changes file i of a unit. The unit's sums and digest stay as they are.
func EditFile(u *commit.Unit, i int, change func(*commit.File)) {
	var p commit.Packer
	for n, f := range u.Files.All() {
		if n == i {
			change(&f)
		}
		p.Add(f)
	}
	u.Files = p.Files()
}
