package restcatalog

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	ice "github.com/apache/iceberg-go"
	icerest "github.com/apache/iceberg-go/catalog/rest"
	"github.com/apache/iceberg-go/table"
)

// Change commits to a table as another writer does, one that knows nothing of
// Firn: with iceberg-go's client of the catalog at url, its transaction and its
// commit loop.
func Change(ctx context.Context, url string, ident []string, change func(context.Context, *table.Transaction) error) (err error) {
	cat, err := icerest.NewCatalog(ctx, "lake", url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cat.Close()) }()
	t, err := cat.LoadTable(ctx, ident)
	if err != nil {
		return err
	}
	txn := t.NewTransaction()
	if err := change(ctx, txn); err != nil {
		return err
	}
	_, err = txn.Commit(ctx)
	return err
}

// Append is a Change that appends rows to a table whose first column is id, a
// BIGINT; the others stay null.
func Append(ids ...int64) func(context.Context, *table.Transaction) error {
	return AppendWith(nil, ids...)
}

// AppendWith is Append with entries for the snapshot's summary.
func AppendWith(summary ice.Properties, ids ...int64) func(context.Context, *table.Transaction) error {
	return func(ctx context.Context, txn *table.Transaction) error {
		schema := arrow.NewSchema([]arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil)
		var rows []string
		for _, id := range ids {
			rows = append(rows, fmt.Sprintf(`{"id": %d}`, id))
		}
		rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader("["+strings.Join(rows, ",")+"]"))
		if err != nil {
			return err
		}
		defer rec.Release()
		rdr, err := array.NewRecordReader(schema, []arrow.RecordBatch{rec})
		if err != nil {
			return err
		}
		defer rdr.Release()
		return txn.Append(ctx, rdr, summary)
	}
}

// Apply changes a table as its owner does with other tools, past proxy and
// requirements: a rollback, an expiry, another schema.
func (s *Server) Apply(ctx context.Context, ident []string, updates ...table.Update) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _, err := s.cat.CommitTable(ctx, ident, nil, updates)
	return err
}

// Empty makes a table again, as other tools make tables: without a first snapshot.
func (s *Server) Empty(ctx context.Context, ident ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.cat.LoadTable(ctx, ident)
	if err != nil {
		return err
	}
	if err := s.cat.DropTable(ctx, ident); err != nil {
		return err
	}
	_, err = s.cat.CreateTable(ctx, ident, t.Schema())
	return err
}
