package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/sql"
)

// ListTables implements firnpb.ClientServiceServer. What isn't named is listed
// through: all catalogs, all namespaces at the top.
func (s *Scheduler) ListTables(ctx context.Context, r *firnpb.ListTablesRequest) (*firnpb.ListTablesResponse, error) {
	resp := &firnpb.ListTablesResponse{}
	catalogs, namespaces := []string{r.GetCatalog()}, [][]string{r.GetNamespace()}
	var err error
	if r.GetCatalog() == "" {
		if catalogs, err = s.cfg.Catalogs.Catalogs(ctx); err != nil {
			return nil, err
		}
	}
	for _, c := range catalogs {
		in := namespaces
		if len(r.GetNamespace()) == 0 {
			if in, err = s.cfg.Catalogs.Namespaces(ctx, c, nil); err != nil {
				return nil, err
			}
		}
		for _, ns := range in {
			tables, err := s.cfg.Catalogs.Tables(ctx, c, ns)
			if err != nil {
				return nil, err
			}
			for _, t := range tables {
				resp.Tables = append(resp.Tables, t.String())
			}
		}
	}
	return resp, nil
}

// DescribeTable implements firnpb.ClientServiceServer.
func (s *Scheduler) DescribeTable(ctx context.Context, r *firnpb.DescribeTableRequest) (*firnpb.TableDescription, error) {
	name, err := s.tableName(ctx, r.GetTable(), wireSession(r.GetSession()))
	if err != nil {
		return nil, err
	}
	return s.describe(ctx, name)
}

// RegisterTable implements firnpb.ClientServiceServer.
func (s *Scheduler) RegisterTable(ctx context.Context, r *firnpb.RegisterTableRequest) (*firnpb.TableDescription, error) {
	name, err := s.tableName(ctx, r.GetTable(), wireSession(r.GetSession()))
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Catalogs.RegisterTable(ctx, name, r.GetMetadataLocation()); err != nil {
		return nil, err
	}
	return s.describe(ctx, name)
}

// AllowCommits implements firnpb.ClientServiceServer.
func (s *Scheduler) AllowCommits(ctx context.Context, r *firnpb.AllowCommitsRequest) (*firnpb.TableDescription, error) {
	name, err := s.tableName(ctx, r.GetTable(), wireSession(r.GetSession()))
	if err != nil {
		return nil, err
	}
	pinned, err := s.cfg.Catalogs.Pin(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := s.stripped.Allow(ctx, pinned.UUID); err != nil {
		return nil, err
	}
	s.log.Info("commits allowed", slog.String("table", name.String()), slog.String("uuid", pinned.UUID))
	return s.describe(ctx, name)
}

func (s *Scheduler) describe(ctx context.Context, name commit.TableName) (*firnpb.TableDescription, error) {
	t, err := s.cfg.Catalogs.Describe(ctx, name)
	if err != nil {
		return nil, err
	}
	return &firnpb.TableDescription{
		Table: t.Name.String(), Format: t.Format, Location: t.Location, MetadataLocation: t.MetadataLocation,
		CurrentSnapshotId: t.SnapshotID, SchemaJson: t.SchemaJSON, PartitionSpecJson: t.SpecJSON, Properties: t.Properties,
		Rows: t.Rows, Files: t.Files, Bytes: t.Bytes, FormatVersion: uint32(t.FormatVersion), Uuid: t.UUID, Snapshots: uint32(t.Snapshots),
		RefusesCommits: s.stripped.Why(t.UUID),
	}, nil
}

// tableName reads a table's name as it stands in SQL.
func (s *Scheduler) tableName(ctx context.Context, text string, session plan.Session) (commit.TableName, error) {
	stmt, err := oneStatement("DESCRIBE " + text)
	if err != nil {
		return commit.TableName{}, err
	}
	d, ok := stmt.Body.(*sql.Describe)
	if !ok {
		return commit.TableName{}, badRequest("read table name", fmt.Errorf("%q isn't the name of a table", text))
	}
	return s.analyzer.ResolveTable(ctx, d.Name, session)
}

// resultRows encodes what a catalog statement gives; nil when it gives no rows.
// A column's type is that of its first value that isn't nil.
func resultRows(res sql.Result) ([]byte, error) {
	if len(res.Columns) == 0 {
		return nil, nil
	}
	fields := make([]arrow.Field, len(res.Columns))
	for i, name := range res.Columns {
		fields[i] = arrow.Field{Name: name, Type: arrow.BinaryTypes.String, Nullable: true}
		for _, row := range res.Rows {
			if i >= len(row) || row[i] == nil {
				continue
			}
			switch row[i].(type) {
			case bool:
				fields[i].Type = arrow.FixedWidthTypes.Boolean
			case int, int64:
				fields[i].Type = arrow.PrimitiveTypes.Int64
			}
			break
		}
	}
	schema := arrow.NewSchema(fields, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for _, row := range res.Rows {
		for i := range fields {
			var v any
			if i < len(row) {
				v = row[i]
			}
			if err := appendValue(b.Field(i), v); err != nil {
				return nil, fmt.Errorf("column %s of %s: %w", fields[i].Name, res.Statement, err)
			}
		}
	}
	rec := b.NewRecordBatch()
	defer rec.Release()
	return wire.EncodeIPC(schema, rec)
}

func appendValue(b array.Builder, v any) error {
	if v == nil {
		b.AppendNull()
		return nil
	}
	switch b := b.(type) {
	case *array.BooleanBuilder:
		if v, ok := v.(bool); ok {
			b.Append(v)
			return nil
		}
	case *array.Int64Builder:
		switch v := v.(type) {
		case int:
			b.Append(int64(v))
			return nil
		case int64:
			b.Append(v)
			return nil
		}
	case *array.StringBuilder:
		b.Append(fmt.Sprint(v))
		return nil
	}
	return fmt.Errorf("a value is a %T, unlike those before it", v)
}

// planRows is a plan as EXPLAIN gives it: one row a line.
func planRows(text string) ([]byte, error) {
	res := sql.Result{Statement: "EXPLAIN", Columns: []string{"plan"}}
	for line := range strings.Lines(text) {
		res.Rows = append(res.Rows, []any{strings.TrimRight(line, "\n")})
	}
	return resultRows(res)
}

// wireSession reads a session from a request.
func wireSession(p *firnpb.Session) plan.Session {
	return plan.Session{Catalog: p.GetCatalog(), Namespace: p.GetNamespace()}
}
