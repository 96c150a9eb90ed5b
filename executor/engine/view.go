package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/duckdb"
	"github.com/firn-project/firn/plan"
)

// rowNumber is DuckDB's name for the number of a row in its file.
const rowNumber = "file_row_number"

// readers are DuckDB's functions by kind of source.
var readers = map[plan.SourceKind]string{
	plan.SourceParquet: "read_parquet",
	plan.SourceCSV:     "read_csv",
	plan.SourceJSON:    "read_json",
}

// viewName gives the quoted name of a source's view and makes the catalog and
// the schema that it stands in.
func (s *session) viewName(ctx context.Context, view []string) (string, error) {
	switch len(view) {
	case 1:
		return "memory.main." + duckdb.Ident(view[0]), nil
	case 3:
	default:
		return "", fmt.Errorf("engine: a view's name has %d parts: want 1 or 3", len(view))
	}
	cat, schema := duckdb.Ident(view[0]), duckdb.Ident(view[0])+"."+duckdb.Ident(view[1])
	if own := strings.EqualFold(view[0], "memory"); own && !strings.EqualFold(view[1], "main") {
		s.undoWith("DROP SCHEMA IF EXISTS " + schema)
	} else if !own {
		if err := s.db.Exec(ctx, "ATTACH IF NOT EXISTS ':memory:' AS "+cat); err != nil {
			return "", fmt.Errorf("catalog %s: %w", view[0], err)
		}
		s.undoWith("DETACH " + cat)
	}
	if err := s.db.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+schema); err != nil {
		return "", fmt.Errorf("namespace %s: %w", view[1], err)
	}
	return schema + "." + duckdb.Ident(view[2]), nil
}

// createView makes the view of one source for a task.
func (s *session) createView(ctx context.Context, src plan.Source, q *plan.Query) error {
	rejectLimit := q.RejectLimit
	if err := checkSource(src); err != nil {
		return err
	}
	name, err := s.viewName(ctx, src.View)
	if err != nil {
		return err
	}
	var body string
	switch src.Kind {
	case plan.SourceUpload, plan.SourceFrame:
		body, err = s.keptQuery(ctx, src)
	case plan.SourceTable:
		body, err = s.tableQuery(ctx, src)
	case plan.SourceFlightSQL:
		body, err = s.flightQuery(ctx, src, q)
	default:
		var in []input
		if in, err = s.stage(ctx, src); err != nil {
			return err
		}
		if in, err = s.siftJSON(ctx, src, in, rejectLimit); err != nil {
			return err
		}
		body, err = fileQuery(src, in, rejectLimit)
	}
	if err != nil {
		return err
	}
	return s.create(ctx, "VIEW", name, " AS "+body)
}

// fileQuery reads the files of a source, in order: whole files together, each
// slice of a file by itself.
func fileQuery(src plan.Source, in []input, rejectLimit int64) (string, error) {
	fn, ok := readers[src.Kind]
	if !ok {
		return "", fmt.Errorf("engine: unknown kind of source %q", src.Kind)
	}
	if len(in) == 0 {
		return emptyQuery(src.Columns)
	}
	opts := maps.Clone(src.Options)
	if opts == nil {
		opts = map[string]string{}
	}
	if src.Kind == plan.SourceCSV {
		rejectOptions(opts, rejectLimit)
	}
	selected := "*"
	if len(src.Columns) > 0 {
		selected = columnList(src.Columns)
	}
	var parts []string
	for _, g := range groups(in) {
		q := "SELECT " + selected + " FROM "
		if !sliced(g[0]) {
			parts = append(parts, q+call(fn, g, opts))
			continue
		}
		if src.Kind != plan.SourceParquet {
			return "", fmt.Errorf("engine: %s: only Parquet files can be sliced", g[0].Path)
		}
		with := maps.Clone(opts)
		with[rowNumber] = "true"
		parts = append(parts, q+call(fn, g, with)+" WHERE "+inSlice(g[0]))
	}
	return strings.Join(parts, " UNION ALL "), nil
}

// groups puts neighbouring whole files together; a slice stands alone.
func groups(in []input) [][]input {
	var out [][]input
	for _, f := range in {
		if last := len(out) - 1; last >= 0 && !sliced(f) && !sliced(out[last][0]) {
			out[last] = append(out[last], f)
			continue
		}
		out = append(out, []input{f})
	}
	return out
}

func sliced(f input) bool { return f.First != 0 || f.End != 0 }

func inSlice(f input) string {
	return fmt.Sprintf("%s >= %d AND %s < %d", rowNumber, f.First, rowNumber, f.End)
}

// call is a reader's call over files with options.
func call(fn string, in []input, opts map[string]string) string {
	var b strings.Builder
	b.WriteString(fn + "([")
	for i, f := range in {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(duckdb.Quote(literalPath(f.open)))
	}
	b.WriteString("]")
	for _, name := range slices.Sorted(maps.Keys(opts)) {
		b.WriteString(", " + name + " = " + opts[name])
	}
	return b.String() + ")"
}

// literalPath keeps DuckDB from taking signs in a file's name for a pattern.
func literalPath(p string) string {
	if !strings.ContainsAny(p, globChars) {
		return p
	}
	return strings.NewReplacer("*", "[*]", "?", "[?]", "[", "[[]").Replace(p)
}

func columnList(cols []plan.Column) string {
	names := make([]string, len(cols))
	for i, c := range cols {
		names[i] = duckdb.Ident(c.Name)
	}
	return strings.Join(names, ", ")
}

// emptyQuery gives no rows of the columns.
func emptyQuery(cols []plan.Column) (string, error) {
	if len(cols) == 0 {
		return "", errors.New("engine: a source without files needs columns")
	}
	parts := make([]string, len(cols))
	for i, c := range cols {
		parts[i] = "NULL::" + c.Type + " AS " + duckdb.Ident(c.Name)
	}
	return "SELECT " + strings.Join(parts, ", ") + " WHERE false", nil
}

// keptQuery loads what executors keep, a client's stream or pieces of a cached
// frame, into a table and reads that.
func (s *session) keptQuery(ctx context.Context, src plan.Source) (string, error) {
	var locations []plan.ShuffleLocation
	what := strings.Join(src.View, ".")
	switch {
	case src.Upload != nil:
		what, locations = "upload "+src.Upload.ID, []plan.ShuffleLocation{src.Upload.Location}
	case src.Frame != nil:
		if what, locations = "cached frame "+src.Frame.ID, src.Frame.Locations; len(locations) == 0 {
			return emptyQuery(src.Columns)
		}
	}
	if len(locations) == 0 || s.cfg.OpenKept == nil {
		return "", &commit.Error{
			Code: commit.CodeSourceNotFound, Op: "read", Object: what,
			Cause: errors.New("there are no uploads or frames here"), Hint: "Upload the rows, or cache the query, again and submit the statement.",
		}
	}
	r, err := s.cfg.OpenKept(ctx, locations)
	if err != nil {
		return "", err
	}
	defer r.Release()
	s.staged++
	table := fmt.Sprintf("firn_kept_%d", s.staged)
	if err := s.db.AppendTable(ctx, table, r.Schema(), r); err != nil {
		return "", fmt.Errorf("load %s: %w", what, err)
	}
	s.undoWith("DROP TABLE memory.main." + duckdb.Ident(table))
	selected := make([]string, len(src.Columns))
	for i, c := range src.Columns {
		selected[i] = fmt.Sprintf("CAST(%s AS %s) AS %[1]s", duckdb.Ident(c.Name), c.Type)
	}
	if len(selected) == 0 {
		selected = []string{"*"}
	}
	return "SELECT " + strings.Join(selected, ", ") + " FROM memory.main." + duckdb.Ident(table), nil
}
