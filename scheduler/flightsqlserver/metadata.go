package flightsqlserver

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql/schema_ref"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/scheduler/jobresult"
	"github.com/firn-project/firn/sql"
)

const (
	// tableType is the type of all tables.
	tableType = "TABLE"
	// maxSchemas is how many tables are listed with their columns: each takes a look.
	maxSchemas = 1000
)

// listing says that a list can be read. Its ticket is the command itself: it is made
// when it is read.
func listing(d *flight.FlightDescriptor, schema *arrow.Schema) (*flight.FlightInfo, error) {
	return &flight.FlightInfo{
		FlightDescriptor: d, Schema: flight.SerializeSchema(schema, memory.DefaultAllocator),
		Endpoint: []*flight.FlightEndpoint{{Ticket: &flight.Ticket{Ticket: d.GetCmd()}}}, TotalRecords: -1, TotalBytes: -1,
	}, nil
}

// list gives rows, each an object of its columns, as a stream.
func list(ctx context.Context, schema *arrow.Schema, rows []map[string]any) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for _, row := range rows {
		raw, err := json.Marshal(row)
		if err == nil {
			err = b.UnmarshalJSON(raw)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("list: %w", err)
		}
	}
	batch := b.NewRecordBatch()
	defer batch.Release()
	r, err := array.NewRecordReader(schema, []arrow.RecordBatch{batch})
	if err != nil {
		return nil, nil, err
	}
	ch := make(chan flight.StreamChunk)
	go flight.StreamChunksFromReader(ctx, r, ch)
	return schema, ch, nil
}

// plainRequest is a statement of this package's own.
func plainRequest(text string) *firnpb.ExecuteRequest {
	return &firnpb.ExecuteRequest{ProtocolVersion: wire.ProtocolVersion, Sql: text}
}

// asked are the rows of a statement that asks the catalog, all of them texts.
func (s *service) asked(ctx context.Context, text string) ([][]string, error) {
	resp, err := s.cfg.Scheduler.Execute(ctx, plainRequest(text))
	if err != nil {
		return nil, err
	}
	rows, err := jobresult.Inline(resp.GetRowsIpc())
	if err != nil {
		return nil, err
	}
	var all [][]string
	err = rows.Each(ctx, 0, func(b arrow.RecordBatch) (bool, error) {
		for i := range int(b.NumRows()) {
			row := make([]string, b.NumCols())
			for c := range row {
				row[c] = b.Column(c).ValueStr(i)
			}
			all = append(all, row)
		}
		return true, nil
	})
	return all, err
}

// catalogs are the names of the catalogs, or the one that is asked for.
func (s *service) catalogs(ctx context.Context, only *string) ([]string, error) {
	rows, err := s.asked(ctx, "SHOW CATALOGS")
	var names []string
	for _, row := range rows {
		if only == nil || *only == row[0] {
			names = append(names, row[0])
		}
	}
	return names, err
}

// schemas are the namespaces at the top of catalogs, as pairs with the catalog.
func (s *service) schemas(ctx context.Context, catalog, pattern *string) ([][]string, error) {
	catalogs, err := s.catalogs(ctx, catalog)
	var all [][]string
	fits := like(pattern)
	for _, c := range catalogs {
		rows, err := s.asked(ctx, "SHOW NAMESPACES IN "+sql.QuoteIdent(c))
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			if fits(row[1]) {
				all = append(all, row)
			}
		}
	}
	return all, err
}

// GetFlightInfoCatalogs implements flightsql.Server.
func (*service) GetFlightInfoCatalogs(_ context.Context, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	return listing(d, schema_ref.Catalogs)
}

// DoGetCatalogs implements flightsql.Server.
func (s *service) DoGetCatalogs(ctx context.Context) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	names, err := s.catalogs(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	var rows []map[string]any
	for _, name := range slices.Sorted(slices.Values(names)) {
		rows = append(rows, map[string]any{"catalog_name": name})
	}
	return list(ctx, schema_ref.Catalogs, rows)
}

// GetFlightInfoSchemas implements flightsql.Server.
func (*service) GetFlightInfoSchemas(_ context.Context, _ flightsql.GetDBSchemas, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	return listing(d, schema_ref.DBSchemas)
}

// DoGetDBSchemas implements flightsql.Server.
func (s *service) DoGetDBSchemas(ctx context.Context, c flightsql.GetDBSchemas) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	all, err := s.schemas(ctx, c.GetCatalog(), c.GetDBSchemaFilterPattern())
	if err != nil {
		return nil, nil, err
	}
	slices.SortFunc(all, slices.Compare)
	var rows []map[string]any
	for _, ns := range all {
		rows = append(rows, map[string]any{"catalog_name": ns[0], "db_schema_name": ns[1]})
	}
	return list(ctx, schema_ref.DBSchemas, rows)
}

func tablesSchema(c flightsql.GetTables) *arrow.Schema {
	if c.GetIncludeSchema() {
		return schema_ref.TablesWithIncludedSchema
	}
	return schema_ref.Tables
}

// GetFlightInfoTables implements flightsql.Server.
func (*service) GetFlightInfoTables(_ context.Context, c flightsql.GetTables, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	return listing(d, tablesSchema(c))
}

// DoGetTables implements flightsql.Server.
func (s *service) DoGetTables(ctx context.Context, c flightsql.GetTables) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	if types := c.GetTableTypes(); len(types) > 0 && !slices.Contains(types, tableType) {
		return list(ctx, tablesSchema(c), nil)
	}
	all, err := s.schemas(ctx, c.GetCatalog(), c.GetDBSchemaFilterPattern())
	if err != nil {
		return nil, nil, err
	}
	slices.SortFunc(all, slices.Compare)
	var rows []map[string]any
	fits := like(c.GetTableNameFilterPattern())
	for _, ns := range all {
		tables, err := s.asked(ctx, "SHOW TABLES IN "+sql.QuoteIdent(ns[0])+"."+sql.QuoteIdent(ns[1]))
		if err != nil {
			return nil, nil, err
		}
		slices.SortFunc(tables, slices.Compare)
		for _, t := range tables {
			if !fits(t[2]) {
				continue
			}
			row := map[string]any{"catalog_name": t[0], "db_schema_name": t[1], "table_name": t[2], "table_type": tableType}
			if rows = append(rows, row); !c.GetIncludeSchema() {
				continue
			}
			if len(rows) > maxSchemas {
				return nil, nil, badRequest("list tables", fmt.Errorf("with their columns at most %d are listed: narrow the patterns", maxSchemas))
			}
			if row["table_schema"], err = s.tableSchema(ctx, sql.QuoteIdent(t[0])+"."+sql.QuoteIdent(t[1])+"."+sql.QuoteIdent(t[2])); err != nil {
				return nil, nil, err
			}
		}
	}
	return list(ctx, tablesSchema(c), rows)
}

// tableSchema is the schema of a table's rows, serialized. A table that can't be read
// has no columns here, so that the others can be listed.
func (s *service) tableSchema(ctx context.Context, name string) ([]byte, error) {
	resp, err := s.cfg.Scheduler.Execute(ctx, plainRequest("EXPLAIN SELECT * FROM "+name))
	schema := schemaOfColumns(resp.GetColumns(), "")
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		s.cfg.Logger.LogAttrs(ctx, slog.LevelDebug, "table listed without columns", slog.String("table", name), slog.Any("error", err))
	}
	if schema == nil {
		schema = arrow.NewSchema(nil, nil)
	}
	return flight.SerializeSchema(schema, memory.DefaultAllocator), nil
}

// GetFlightInfoTableTypes implements flightsql.Server.
func (*service) GetFlightInfoTableTypes(_ context.Context, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	return listing(d, schema_ref.TableTypes)
}

// DoGetTableTypes implements flightsql.Server.
func (*service) DoGetTableTypes(ctx context.Context) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	return list(ctx, schema_ref.TableTypes, []map[string]any{{"table_type": tableType}})
}

// Tables have no keys.

// GetFlightInfoPrimaryKeys implements flightsql.Server.
func (*service) GetFlightInfoPrimaryKeys(_ context.Context, _ flightsql.TableRef, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	return listing(d, schema_ref.PrimaryKeys)
}

// DoGetPrimaryKeys implements flightsql.Server.
func (*service) DoGetPrimaryKeys(ctx context.Context, _ flightsql.TableRef) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	return list(ctx, schema_ref.PrimaryKeys, nil)
}

// GetFlightInfoExportedKeys implements flightsql.Server.
func (*service) GetFlightInfoExportedKeys(_ context.Context, _ flightsql.TableRef, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	return listing(d, schema_ref.ExportedKeys)
}

// DoGetExportedKeys implements flightsql.Server.
func (*service) DoGetExportedKeys(ctx context.Context, _ flightsql.TableRef) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	return list(ctx, schema_ref.ExportedKeys, nil)
}

// GetFlightInfoImportedKeys implements flightsql.Server.
func (*service) GetFlightInfoImportedKeys(_ context.Context, _ flightsql.TableRef, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	return listing(d, schema_ref.ImportedKeys)
}

// DoGetImportedKeys implements flightsql.Server.
func (*service) DoGetImportedKeys(ctx context.Context, _ flightsql.TableRef) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	return list(ctx, schema_ref.ImportedKeys, nil)
}

// GetFlightInfoCrossReference implements flightsql.Server.
func (*service) GetFlightInfoCrossReference(_ context.Context, _ flightsql.CrossTableRef, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	return listing(d, schema_ref.CrossReference)
}

// DoGetCrossReference implements flightsql.Server.
func (*service) DoGetCrossReference(ctx context.Context, _ flightsql.CrossTableRef) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	return list(ctx, schema_ref.CrossReference, nil)
}

// like gives what says whether a name is of a pattern, in which % stands for any text,
// _ for any character, and \ takes that from what follows it. No pattern is one of all
// names.
func like(pattern *string) func(name string) bool {
	if pattern == nil {
		return func(string) bool { return true }
	}
	var re strings.Builder
	re.WriteString("^(?s:")
	escaped := false
	for _, c := range *pattern {
		switch {
		case escaped:
			re.WriteString(regexp.QuoteMeta(string(c)))
			escaped = false
		case c == '\\':
			escaped = true
		case c == '%':
			re.WriteString(".*")
		case c == '_':
			re.WriteByte('.')
		default:
			re.WriteString(regexp.QuoteMeta(string(c)))
		}
	}
	re.WriteString(")$")
	compiled, err := regexp.Compile(re.String())
	if err != nil {
		return func(string) bool { return false }
	}
	return compiled.MatchString
}
