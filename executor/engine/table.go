package engine

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/firn-project/firn/internal/duckdb"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/plan"
)

// tableQuery reads the files of a table at its pinned version.
//
// Files are read by field id: a column renamed since is found, one added since
// gets its default, one dropped isn't read, and a promoted type is cast. Files
// without field ids are read by name. Position deletes are compared with the
// row's number in its file, equality deletes with the columns that they name,
// null equal to null; both remove rows by anti joins inside the file's own part
// of the union, so a slice of the table gives the same rows in any task.
func (s *session) tableQuery(ctx context.Context, src plan.Source) (string, error) {
	in, err := s.stage(ctx, src)
	if err != nil {
		return "", err
	}
	if len(in) == 0 {
		return emptyQuery(src.Columns)
	}
	if src.Delta != nil {
		return s.deltaQuery(ctx, src, in)
	}
	for i, f := range in {
		ids, err := s.hasFieldIDs(ctx, f)
		if err != nil {
			return "", err
		}
		in[i].NoFieldIDs = f.NoFieldIDs || !ids
		if err := s.checkNested(ctx, src, in[i]); err != nil {
			return "", err
		}
	}
	var parts []string
	for _, g := range tableGroups(in) {
		var q string
		if len(g) > 1 || plain(g[0]) {
			q = "SELECT " + scanned(src.Columns) + " FROM " + byFieldID(g, src.Columns, false)
		} else if q, err = s.tableFile(ctx, src, g[0]); err != nil {
			return "", err
		}
		parts = append(parts, q)
	}
	return strings.Join(parts, " UNION ALL "), nil
}

// plain files are read whole, by field id and without deletes.
func plain(f input) bool {
	return !sliced(f) && !f.NoFieldIDs && len(f.PositionDeletes) == 0 && len(f.EqualityDeletes) == 0
}

// scanned selects the columns of a table's file. A floating-point column is
// selected as its difference from zero, which is every value itself, NaN and -0.0
// too: DuckDB would else push filters on it down to the statistics of row groups,
// which Parquet keeps without NaN, and lose rows, since NaN is above every number
// in DuckDB. It doesn't push filters on a struct's fields down to files that it
// reads by field id; byName keeps it from doing so elsewhere.
func scanned(cols []plan.Column) string {
	list := make([]string, len(cols))
	for i, c := range cols {
		list[i] = duckdb.Ident(c.Name)
		if c.Type == "FLOAT" || c.Type == "DOUBLE" {
			list[i] = fmt.Sprintf("%s - 0::%s AS %[1]s", list[i], c.Type)
		}
	}
	return strings.Join(list, ", ")
}

func tableGroups(in []input) [][]input {
	var out [][]input
	for _, f := range in {
		if last := len(out) - 1; last >= 0 && plain(f) && plain(out[last][0]) {
			out[last] = append(out[last], f)
			continue
		}
		out = append(out, []input{f})
	}
	return out
}

// byFieldID is a read_parquet call that gives cols, found by their field ids.
func byFieldID(in []input, cols []plan.Column, numbered bool) string {
	entries := make([]string, len(cols))
	for i, c := range cols {
		def := "NULL"
		if c.Default != "" {
			def = c.Default
		}
		entries[i] = fmt.Sprintf("%d: {name: %s, type: %s, default_value: (%s)::VARCHAR}",
			c.FieldID, duckdb.Quote(c.Name), duckdb.Quote(c.Type), def)
	}
	opts := map[string]string{
		"schema":            "MAP {" + strings.Join(entries, ", ") + "}",
		"hive_partitioning": "false",
	}
	if numbered {
		opts[rowNumber] = "true"
	}
	return call("read_parquet", in, opts)
}

// tableFile reads one file that is sliced, has deletes or lacks field ids.
func (s *session) tableFile(ctx context.Context, src plan.Source, f input) (string, error) {
	cols, deletes, err := s.equalityDeletes(ctx, src, f)
	if err != nil {
		return "", err
	}
	from := byFieldID([]input{f}, cols, true)
	if f.NoFieldIDs {
		if from, err = s.byName(ctx, src, f, cols); err != nil {
			return "", err
		}
	}
	var where []string
	if sliced(f) {
		where = append(where, inSlice(f))
	}
	if len(f.PositionDeletes) > 0 {
		d, err := s.positionDeletes(ctx, src, f)
		if err != nil {
			return "", err
		}
		where = append(where, d)
	}
	where = append(where, deletes...)
	q := "SELECT " + scanned(src.Columns) + " FROM " + from + " AS firn_d"
	if len(where) > 0 {
		q += " WHERE " + strings.Join(where, " AND ")
	}
	return q, nil
}

// byName reads a file without field ids: columns by the names that the table's
// name mapping gives them, else by their own, those that it lacks with their
// defaults.
func (s *session) byName(ctx context.Context, src plan.Source, f input, cols []plan.Column) (string, error) {
	read := call("read_parquet", []input{f}, map[string]string{"hive_partitioning": "false", rowNumber: "true"})
	has, err := s.db.Describe(ctx, "SELECT * FROM "+read)
	if err != nil {
		return "", err
	}
	parts := []string{rowNumber}
	for _, c := range cols {
		value := "NULL"
		if c.Default != "" {
			value = "(" + c.Default + ")"
		}
		names := src.NameMapping[c.FieldID]
		if src.NameMapping == nil {
			names = []string{c.Name}
		}
		named := func(h duckdb.Column) bool {
			return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(h.Name, n) })
		}
		if i := slices.IndexFunc(has, named); i >= 0 {
			value = duckdb.Ident(has[i].Name)
			if err := driftedNested(f, c, has[i].Type); err != nil {
				return "", err
			}
		}
		value = "CAST(" + value + " AS " + c.Type + ")"
		if strings.Contains(c.Type, "STRUCT(") && (strings.Contains(c.Type, "FLOAT") || strings.Contains(c.Type, "DOUBLE")) {
			value = "[" + value + "][1]" // itself, and nothing to push a filter through
		}
		parts = append(parts, value+" AS "+duckdb.Ident(c.Name))
	}
	return "(SELECT " + strings.Join(parts, ", ") + " FROM " + read + ")", nil
}

// positionDeletes is the condition that no position delete names the row. The
// delete files name the data file as the table does, with or without a scheme.
func (s *session) positionDeletes(ctx context.Context, src plan.Source, f input) (string, error) {
	files, err := s.stageAll(ctx, src, f.PositionDeletes)
	if err != nil {
		return "", err
	}
	names := []string{duckdb.Quote(f.Path)}
	if p, local := objstore.LocalPattern(f.Path); local {
		names = []string{duckdb.Quote(p), duckdb.Quote("file:" + p), duckdb.Quote("file://" + p)}
	}
	return fmt.Sprintf("NOT EXISTS (SELECT 1 FROM %s AS firn_p WHERE firn_p.file_path IN (%s) AND firn_p.pos = firn_d.%s)",
		call("read_parquet", files, map[string]string{"hive_partitioning": "false"}), strings.Join(names, ", "), rowNumber), nil
}

func (s *session) stageAll(ctx context.Context, src plan.Source, paths []string) ([]input, error) {
	files := make([]input, len(paths))
	objects := make([]plan.SourceFile, len(paths))
	for i, p := range paths {
		objects[i].Path = p
	}
	if err := s.openObjects(ctx, src, objects); err != nil {
		return nil, err
	}
	for i, p := range paths {
		open, err := s.stageFile(ctx, src, p)
		if err != nil {
			return nil, err
		}
		files[i] = input{SourceFile: plan.SourceFile{Path: p}, open: open}
		s.names[open] = p
	}
	return files, nil
}

// equalityDeletes gives a condition for each equality delete of the file, and
// the columns to read the file with: the source's and those that only the
// deletes need, since a column may have been dropped after rows were deleted by
// it.
func (s *session) equalityDeletes(ctx context.Context, src plan.Source, f input) (cols []plan.Column, conditions []string, err error) {
	cols = slices.Clone(src.Columns)
	for _, d := range f.EqualityDeletes {
		files, err := s.stageAll(ctx, src, []string{d.Path})
		if err != nil {
			return nil, nil, err
		}
		keys, err := s.keyColumns(ctx, cols, files[0], d.FieldIDs)
		if err != nil {
			return nil, nil, err
		}
		same := make([]string, len(keys))
		for i, k := range keys {
			if !slices.ContainsFunc(cols, func(c plan.Column) bool { return c.FieldID == k.FieldID }) {
				cols = append(cols, k)
			}
			same[i] = fmt.Sprintf("firn_e.%[1]s IS NOT DISTINCT FROM firn_d.%[1]s", duckdb.Ident(k.Name))
		}
		conditions = append(conditions, fmt.Sprintf("NOT EXISTS (SELECT 1 FROM %s AS firn_e WHERE %s)",
			byFieldID(files, keys, false), strings.Join(same, " AND ")))
	}
	return cols, conditions, nil
}

// keyColumns finds the columns that an equality delete file compares, by their
// field ids: in the table, else in the delete file itself.
func (s *session) keyColumns(ctx context.Context, cols []plan.Column, del input, ids []int) ([]plan.Column, error) {
	if len(ids) == 0 {
		return nil, badFile(del.Path, "the equality delete file names no columns")
	}
	var own map[int]string
	keys := make([]plan.Column, len(ids))
	for i, id := range ids {
		if at := slices.IndexFunc(cols, func(c plan.Column) bool { return c.FieldID == id }); at >= 0 {
			keys[i] = cols[at]
			// The default is for data files that lack the column.
			keys[i].Default = ""
			continue
		}
		if own == nil {
			var err error
			if own, err = s.fieldTypes(ctx, del); err != nil {
				return nil, err
			}
		}
		t, ok := own[id]
		if !ok {
			return nil, badFile(del.Path, fmt.Sprintf("the equality delete file has no column with field id %d", id))
		}
		keys[i] = plan.Column{Name: "firn_key_" + strconv.Itoa(id), Type: t, FieldID: id}
	}
	return keys, nil
}

// fieldTypes gives the DuckDB types of a file's top-level columns by field id.
func (s *session) fieldTypes(ctx context.Context, f input) (map[int]string, error) {
	cols, err := s.db.Describe(ctx, "SELECT * FROM "+call("read_parquet", []input{f}, map[string]string{"hive_partitioning": "false"}))
	if err != nil {
		return nil, err
	}
	root, err := s.parquetRoot(ctx, f)
	if err != nil {
		return nil, err
	}
	types := map[int]string{}
	for i := range min(root.NumFields(), len(cols)) {
		types[int(root.Field(i).FieldID())] = cols[i].Type
	}
	return types, nil
}

// parquetRoot reads the schema of a file.
func (s *session) parquetRoot(ctx context.Context, f input) (*schema.GroupNode, error) {
	obj, done, err := s.openInput(ctx, f)
	if err != nil {
		return nil, storeError(f.Path, err)
	}
	defer done()
	r, err := file.NewParquetReader(io.NewSectionReader(obj, 0, obj.Size()))
	if err != nil {
		return nil, badFile(f.Path, err.Error())
	}
	defer func() { _ = r.Close() }()
	return r.MetaData().Schema.Root(), nil
}

// hasFieldIDs says whether a file names the field of any column. Files that were
// added to a table as other systems wrote them don't, and the table's metadata
// doesn't say which they are.
func (s *session) hasFieldIDs(ctx context.Context, f input) (bool, error) {
	root, err := s.parquetRoot(ctx, f)
	if err != nil {
		return false, err
	}
	for i := range root.NumFields() {
		if root.Field(i).FieldID() >= 0 {
			return true, nil
		}
	}
	return root.NumFields() == 0, nil
}
