package footers

import (
	"context"
	"errors"
	"fmt"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/format/delta"
	"github.com/firn-project/firn/format/footer"
	"github.com/firn-project/firn/format/iceberg"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/internal/wire/openwrite"
	"github.com/firn-project/firn/plan"
)

// deriver is what the formats have.
type deriver interface {
	File(*footer.Footer, footer.Claim) (commit.File, error)
}

// For binds a table: its schema, partition spec and properties. The error is that of a
// table that can't be written.
//
// derive reads the footer of a file that an external writer only said the place of,
// and describes it as a complete manifest would. What the row says of the file must be
// so. A file that isn't what the table or the row wants is a *commit.Error with
// CodeManifestRefused that names the path and says what to do. Any other error is
// the store's, and may pass.
func (c *Checker) For(target plan.Pinned) (derive func(ctx context.Context, store objstore.Store, attempt string, row openwrite.PathsRow) (commit.File, error), err error) {
	d, err := deriverOf(target)
	if err != nil {
		return nil, &commit.Error{Code: commit.CodeTableLayout, Op: "read files for", Object: target.Name.String(), Cause: err}
	}
	return func(ctx context.Context, store objstore.Store, attempt string, row openwrite.PathsRow) (commit.File, error) {
		return c.derive(ctx, store, d, attempt, row)
	}, nil
}

func (c *Checker) derive(ctx context.Context, store objstore.Store, d deriver, attempt string, row openwrite.PathsRow) (commit.File, error) {
	o, err := store.Open(ctx, row.Path)
	if errors.Is(err, objstore.ErrNotFound) {
		return commit.File{}, refused(row.Path, &footer.Error{Why: "there's no such file", Hint: "Hand a file in when it is written and closed."})
	}
	if err != nil {
		return commit.File{}, fmt.Errorf("open %s: %w", row.Path, err)
	}
	defer o.Close() //nolint:errcheck // it was only read
	var f commit.File
	why, err := c.footer(ctx, o, func(raw []byte) error {
		parsed, err := footer.Parse(raw, o.Size())
		if err != nil {
			return unreadable(err)
		}
		f, err = d.File(parsed, footer.Claim{Size: row.Size, Rows: row.Rows, Partition: row.Partition})
		return err
	})
	switch {
	case err != nil:
		return commit.File{}, fmt.Errorf("read the footer of %s: %w", row.Path, err)
	case why != nil:
		return commit.File{}, refused(row.Path, why)
	}
	f.Path, f.Attempt = row.Path, attempt
	return f, nil
}

func deriverOf(target plan.Pinned) (deriver, error) {
	switch target.Format {
	case "iceberg":
		schema, err := iceberg.ParseSchema(target.SchemaJSON)
		if err != nil {
			return nil, err
		}
		spec, err := iceberg.ParseSpec(target.SpecJSON, schema)
		if err != nil {
			return nil, err
		}
		return iceberg.NewDeriver(schema, spec, target.Properties)
	case "delta":
		partition, err := delta.ParsePartition(target.SpecJSON)
		if err != nil {
			return nil, err
		}
		return delta.NewDeriver(string(target.SchemaJSON), partition, target.Properties, target.SortOrderJSON)
	}
	return nil, fmt.Errorf("it has the format %q, and only Iceberg and Delta tables can be written", target.Format)
}

// refused is the error of a file that isn't what the table or its row wants.
func refused(path string, why error) error {
	hint := "Write the file anew, under another name, and hand it in."
	if e, ok := errors.AsType[*footer.Error](why); ok {
		hint = e.Hint
	}
	return &commit.Error{
		Code: commit.CodeManifestRefused, Op: "take file", Object: path, Cause: why,
		Tried: "nothing was handed in", Hint: hint,
	}
}
