package sql_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/duckdb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/sql"
)

// parser is DuckDB's, shared by all tests.
var parser *duckdb.Parser

func TestMain(m *testing.M) {
	var err error
	if parser, err = duckdb.NewParser(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	parser.Close()
	os.Exit(code)
}

// fakeCatalogs holds tables in memory.
type fakeCatalogs struct {
	names      []string
	namespaces map[string][][]string
	tables     map[string]plan.Pinned
	defs       []sql.TableDef
	dropped    []string
	made       []string
	versions   []string
	filters    []sql.Filter
}

var errNoTable = &commit.Error{Code: "FIRN-9404", Op: "load table", Cause: commit.ErrTableNotFound}

func (f *fakeCatalogs) Catalogs(context.Context) ([]string, error) { return f.names, nil }

func (f *fakeCatalogs) Namespaces(_ context.Context, catalog string, parent []string) ([][]string, error) {
	return f.namespaces[catalog], nil
}

func (f *fakeCatalogs) CreateNamespace(_ context.Context, catalog string, ns []string, props map[string]string, ifNotExists bool) error {
	f.made = append(f.made, fmt.Sprint(catalog, ns, props, ifNotExists))
	return nil
}

func (f *fakeCatalogs) DropNamespace(_ context.Context, catalog string, ns []string, ifExists bool) error {
	f.dropped = append(f.dropped, fmt.Sprint(catalog, ns, ifExists))
	return nil
}

func (f *fakeCatalogs) Tables(_ context.Context, catalog string, ns []string) ([]commit.TableName, error) {
	if !slices.ContainsFunc(f.namespaces[catalog], func(n []string) bool { return slices.Equal(n, ns) }) {
		return nil, &commit.Error{Code: "FIRN-9405", Op: "list tables", Object: catalog, Cause: errors.New("no such namespace")}
	}
	var out []commit.TableName
	for _, t := range f.tables {
		if t.Name.Catalog == catalog && slices.Equal(t.Name.Namespace, ns) {
			out = append(out, t.Name)
		}
	}
	slices.SortFunc(out, func(a, b commit.TableName) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func (f *fakeCatalogs) CreateTable(_ context.Context, def sql.TableDef) error {
	f.defs = append(f.defs, def)
	return nil
}

func (f *fakeCatalogs) DropTable(_ context.Context, name commit.TableName, ifExists bool) error {
	f.dropped = append(f.dropped, fmt.Sprint(name, ifExists))
	return nil
}

func (f *fakeCatalogs) RegisterTable(context.Context, commit.TableName, string) error { return nil }

func (f *fakeCatalogs) Pin(_ context.Context, name commit.TableName) (plan.Pinned, error) {
	p, ok := f.tables[name.String()]
	if !ok {
		return p, errNoTable
	}
	return p, nil
}

func (f *fakeCatalogs) Scan(_ context.Context, t plan.Pinned, version string, where sql.Filter) (plan.Source, error) {
	f.filters = append(f.filters, where)
	f.versions = append(f.versions, version)
	return plan.Source{Files: []plan.SourceFile{{Path: "/data/" + t.Name.Name + ".parquet", Size: 100, Rows: 1}}, Columns: columnsOf(t)}, nil
}

func (f *fakeCatalogs) History(context.Context, commit.TableName) ([]sql.TableVersion, error) {
	return nil, errNoTable
}

func (f *fakeCatalogs) Describe(context.Context, commit.TableName) (sql.TableInfo, error) {
	return sql.TableInfo{}, errors.New("not used")
}

// columnsOf reads the types that the tests' schemas use.
func columnsOf(t plan.Pinned) []plan.Column {
	var s struct {
		Fields []struct {
			ID       int             `json:"id"`
			Name     string          `json:"name"`
			Type     json.RawMessage `json:"type"`
			Required bool            `json:"required"`
		} `json:"fields"`
	}
	if err := json.Unmarshal(t.SchemaJSON, &s); err != nil {
		panic(err)
	}
	names := map[string]string{
		"long": "BIGINT", "int": "INTEGER", "string": "VARCHAR", "double": "DOUBLE", "date": "DATE", "boolean": "BOOLEAN",
		"timestamp": "TIMESTAMP", "timestamptz": "TIMESTAMP WITH TIME ZONE", "decimal(10, 2)": "DECIMAL(10,2)", "float": "FLOAT", "uuid": "UUID",
	}
	var out []plan.Column
	for _, f := range s.Fields {
		var name string
		if json.Unmarshal(f.Type, &name) != nil {
			continue // nested ones aren't read in these tests
		}
		out = append(out, plan.Column{Name: f.Name, Type: names[name], FieldID: f.ID, Required: f.Required})
	}
	return out
}

// table defines a table by its CREATE statement and gives it back pinned.
func (f *fakeCatalogs) table(t testing.TB, create string) plan.Pinned {
	t.Helper()
	st := parseOne(t, create)
	an := &sql.Analyzer{Catalogs: f, Parser: parser}
	if _, err := an.RunCatalogStatement(t.Context(), st, plan.Session{Catalog: "lake", Namespace: []string{"air"}}); err != nil {
		t.Fatal(err)
	}
	def := f.defs[len(f.defs)-1]
	p := plan.Pinned{
		Name: def.Name, Format: def.Format, UUID: "u-" + def.Name.Name, FormatVersion: 2, Location: "file:///w/" + def.Name.Name,
		SchemaJSON: def.SchemaJSON, SpecJSON: def.SpecJSON, Properties: def.Properties,
		DataLocation: "file:///w/" + def.Name.Name + "/data",
	}
	f.tables[p.Name.String()] = p
	return p
}

func newCatalogs(t testing.TB) *fakeCatalogs {
	t.Helper()
	f := &fakeCatalogs{
		names:      []string{"lake", "ice"},
		namespaces: map[string][][]string{"lake": {{"air"}, {"a", "b"}}, "ice": {{"x"}}},
		tables:     map[string]plan.Pinned{},
	}
	f.table(t, "CREATE TABLE lake.air.t (id BIGINT, name VARCHAR, score DOUBLE)")
	f.table(t, "CREATE TABLE lake.air.u (id BIGINT, day DATE)")
	f.table(t, `CREATE TABLE lake."a.b".nested (id BIGINT)`)
	f.table(t, `CREATE TABLE lake.air."odd ""name" (id BIGINT)`)
	return f
}

// fakeBinder binds with a real DuckDB: sources become empty views of their
// columns, those of files of the columns given for their first path.
type fakeBinder struct {
	t        testing.TB
	files    map[string][]plan.Column
	sizes    map[string][]plan.SourceFile
	rowWise  bool
	volatile bool
	last     plan.ProbeRequest
	err      error
}

func (b *fakeBinder) Probe(ctx context.Context, req plan.ProbeRequest) (plan.ProbeResult, error) {
	b.last = req
	if b.err != nil {
		return plan.ProbeResult{}, b.err
	}
	in, err := duckdb.Open(ctx, duckdb.Config{})
	if err != nil {
		return plan.ProbeResult{}, err
	}
	defer in.Close()
	res := plan.ProbeResult{Sources: slices.Clone(req.Sources), RowWise: b.rowWise, Why: "a join decided", Deterministic: !b.volatile}
	attached := map[string]bool{}
	for i := range res.Sources {
		s := &res.Sources[i]
		if len(s.Patterns) > 0 {
			s.Columns = b.files[s.Patterns[0]]
			s.Files = b.sizes[s.Patterns[0]]
		}
		if len(s.Columns) == 0 {
			return res, &commit.Error{Code: "FIRN-9406", Op: "read file", Object: fmt.Sprint(s.Patterns), Cause: errors.New("no such file")}
		}
		var cols []string
		for _, c := range s.Columns {
			cols = append(cols, "CAST(NULL AS "+c.Type+") AS "+duckdb.Ident(c.Name))
		}
		var view []string
		for _, v := range s.View {
			view = append(view, duckdb.Ident(v))
		}
		if len(view) == 3 {
			if !attached[s.View[0]] {
				attached[s.View[0]] = true
				if err := in.Exec(ctx, "ATTACH ':memory:' AS "+view[0]); err != nil {
					return res, err
				}
			}
			if err := in.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+view[0]+"."+view[1]); err != nil {
				return res, err
			}
		}
		if err := in.Exec(ctx, "CREATE VIEW "+strings.Join(view, ".")+" AS SELECT "+strings.Join(cols, ", ")+" LIMIT 0"); err != nil {
			return res, err
		}
	}
	columns, err := in.Describe(ctx, req.SQL)
	if err != nil {
		return res, fmt.Errorf("%s: %w", req.SQL, err)
	}
	for _, c := range columns {
		res.Columns = append(res.Columns, plan.Column{Name: c.Name, Type: c.Type})
	}
	return res, nil
}

func newBinder(t testing.TB) *fakeBinder {
	abc := []plan.Column{{Name: "a", Type: "BIGINT"}, {Name: "b", Type: "VARCHAR"}, {Name: "c", Type: "DOUBLE"}}
	return &fakeBinder{t: t, files: map[string][]plan.Column{
		"x.parquet": abc, "dir/x.parquet": abc, "dir/*.parquet": abc, "y.csv": abc, "z.ndjson": abc, "s3://b/k/x.parquet": abc,
		"clock.csv": {{Name: "current_date", Type: "VARCHAR"}},
	}, sizes: map[string][]plan.SourceFile{}}
}

var testNow = time.Date(2026, 3, 1, 23, 30, 0, 123456000, time.UTC)

var testOptions = sql.BindOptions{JobID: "j-1", Now: testNow, Slots: 2}

var airSession = plan.Session{Catalog: "lake", Namespace: []string{"air"}}

func parseOne(t testing.TB, text string) sql.Statement {
	t.Helper()
	list, err := sql.Parse(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if len(list) != 1 {
		t.Fatalf("%s: %d statements", text, len(list))
	}
	return list[0]
}

// bindText binds one statement against the tests' tables and files.
func bindText(t testing.TB, text string) (plan.Node, *fakeBinder, error) {
	t.Helper()
	return bindOver(t, newCatalogs(t), text)
}

func bindOver(t testing.TB, f *fakeCatalogs, text string) (plan.Node, *fakeBinder, error) {
	t.Helper()
	b := newBinder(t)
	an := &sql.Analyzer{Catalogs: f, Binder: b, Parser: parser}
	n, err := an.Bind(t.Context(), parseOne(t, text), airSession, testOptions)
	return n, b, err
}
