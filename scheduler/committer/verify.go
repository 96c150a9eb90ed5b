package committer

import (
	"fmt"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/format/delta"
	"github.com/firn-project/firn/format/iceberg"
	"github.com/firn-project/firn/plan"
)

// layout is what the plan says of the files of a unit: the ids that they must
// have been written with, and the check of what only the format can tell.
type layout struct {
	schemaID, specID int
	check            func(commit.File) error
}

// layoutOf reads the schema and the partition spec that the job was planned
// against. They come from the catalog, not from an executor.
func layoutOf(target plan.Pinned) (layout, error) {
	switch target.Format {
	case "iceberg":
		return icebergLayout(target)
	case "delta":
		return deltaLayout(target)
	}
	return layout{}, fmt.Errorf("table %s has the format %q, and only Iceberg and Delta tables can be written", target.Name, target.Format)
}

func icebergLayout(target plan.Pinned) (layout, error) {
	schema, err := iceberg.ParseSchema(target.SchemaJSON)
	if err != nil {
		return layout{}, err
	}
	spec, err := iceberg.ParseSpec(target.SpecJSON, schema)
	if err != nil {
		return layout{}, err
	}
	return layout{
		schemaID: schema.ID, specID: spec.ID(),
		check: func(f commit.File) error {
			if err := iceberg.CheckBounds(schema, f); err != nil {
				return err
			}
			return iceberg.CheckPartition(schema, spec, f)
		},
	}, nil
}

func deltaLayout(target plan.Pinned) (layout, error) {
	schema, err := delta.ParseSchema(string(target.SchemaJSON))
	if err != nil {
		return layout{}, err
	}
	partition, err := delta.ParsePartition(target.SpecJSON)
	if err != nil {
		return layout{}, err
	}
	return layout{
		schemaID: delta.SchemaID(string(target.SchemaJSON)), specID: delta.PartitionID(partition),
		check: func(f commit.File) error {
			if _, err := delta.FileStats(schema, partition, f); err != nil {
				return err
			}
			return delta.CheckPartition(schema, partition, f)
		},
	}, nil
}

// verify holds the unit against what the scheduler knows by itself.
func verify(u commit.Unit, r Root, l layout) error {
	if err := commit.Verify(u, commit.Facts{Attempts: r.Attempts, Bounds: l.check}); err != nil {
		return err
	}
	if e := r.Expected; e != nil && (e.Files != int64(u.Files.Len()) || e.Rows != u.Rows) {
		return &commit.Error{
			Code: commit.CodeVerification, Op: "verify the files for", Object: u.Table.String(), Reason: commit.ReasonValidation,
			Cause: fmt.Errorf("the manifests list %d files with %d rows, but the accepted tasks reported %d with %d",
				u.Files.Len(), u.Rows, e.Files, e.Rows),
			Tried: "nothing was committed",
			Hint:  "Run the statement again with the same idempotency key.",
		}
	}
	return nil
}

// CheckManifest holds the files of one attempt against what is known when they are
// handed in: everything that verification before the commit asks, but for what the
// other attempts have. The target is the one that their job was planned against.
func CheckManifest(target plan.Pinned, prefix, attempt string, files []commit.File) error {
	l, err := layoutOf(target)
	if err != nil {
		return err
	}
	u := commit.NewUnit(commit.UnitSpec{
		Table: target.Name, TableUUID: target.UUID, Operation: commit.OperationAppend, SchemaID: l.schemaID, SpecID: l.specID,
		Prefix: prefix, Tasks: 1, Files: files,
	})
	return commit.Verify(u, commit.Facts{Attempts: []string{attempt}, Bounds: l.check})
}
