package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/firn-project/firn/internal/duckdb"
	"github.com/firn-project/firn/plan"
)

// outside are the options that say what a reader adds to a file's own columns,
// and how files go together.
var outside = []string{"filename", "hive_partitioning", "hive_types", "hive_types_autocast", "union_by_name"}

// aliases are other spellings of read_csv's options, of which not all of DuckDB's
// functions know all.
var aliases = map[string]string{
	"sep": "delim", "delimiter": "delim", "null": "nullstr", "date_format": "dateformat", "timestamp_format": "timestampformat",
	"dtypes": "types", "column_types": "types", "column_names": "names",
}

// guessing are the options that steer the detection of a dialect and of types;
// once those are pinned they have no use, and some contradict what is pinned.
var guessing = []string{
	"auto_detect", "sample_size", "types", "names", "all_varchar", "auto_type_candidates", "normalize_names",
	"delim", "quote", "escape", "header", "skip", "comment", "dateformat", "timestampformat", "columns",
}

func without(opts map[string]string, names ...[]string) map[string]string {
	out := maps.Clone(opts)
	if out == nil {
		out = map[string]string{}
	}
	maps.DeleteFunc(out, func(name, _ string) bool {
		return slices.ContainsFunc(names, func(n []string) bool { return slices.Contains(n, strings.ToLower(name)) })
	})
	return out
}

// byName says whether the user asked for files to be combined by column name.
func byName(opts map[string]string) bool {
	switch strings.ToLower(opts["union_by_name"]) {
	case "true", "'true'", "1", "cast('t' as boolean)":
		return true
	}
	return false
}

// pinCSV detects the dialect of the first file, checks that the others have its
// columns, detects the types over all of them, and fixes it all in the options,
// so that tasks needn't detect anything and can't disagree.
func (s *session) pinCSV(ctx context.Context, src *plan.Source, in []input) error {
	user := without(src.Options, []string{"store_rejects", "rejects_table", "rejects_scan", "rejects_limit"})
	for name, value := range src.Options {
		if canonical, ok := aliases[name]; ok {
			delete(user, name)
			user[canonical] = value
		}
	}
	if byName(user) {
		src.Options = user
		return nil
	}
	dialect, names, err := s.sniff(ctx, in[0], without(user, outside))
	if err != nil {
		return err
	}
	if _, given := user["quote"]; !given {
		s.keepQuotes(ctx, in[0], dialect, names)
	}
	for _, f := range in[1:] {
		_, other, err := s.sniff(ctx, f, dialect)
		if err != nil {
			return err
		}
		if err := compareNames(in[0], f, names, other, dialect["header"] == "true"); err != nil {
			return err
		}
	}
	columns, given := user["columns"]
	if !given {
		if columns, err = s.csvTypes(ctx, in, dialect); err != nil {
			return err
		}
	}
	pinned := without(user, guessing)
	for _, name := range []string{"delim", "quote", "escape", "comment", "skip", "header", "dateformat", "timestampformat"} {
		if v, ok := dialect[name]; ok {
			pinned[name] = v
		}
	}
	pinned["auto_detect"] = "false"
	pinned["columns"] = columns
	src.Options = pinned
	return nil
}

// csvTypes detects the types of columns over all files.
func (s *session) csvTypes(ctx context.Context, in []input, dialect map[string]string) (string, error) {
	opts := maps.Clone(dialect)
	opts["hive_partitioning"] = "false"
	if _, set := opts["ignore_errors"]; !set {
		opts["store_rejects"] = "true"
	}
	cols, err := s.db.Describe(ctx, "SELECT * FROM "+call("read_csv", in, opts))
	if err != nil {
		return "", err
	}
	return structOf(cols), nil
}

// keepQuotes takes the usual quotes for a file in whose sample none occur: the
// sniffer then says that there are none, and a quoted field further down, or in
// another file, would fall apart. If the sample contradicts, the sniffer is right.
func (s *session) keepQuotes(ctx context.Context, f input, dialect map[string]string, names []string) {
	if dialect["quote"] != "''" {
		return
	}
	quoted := maps.Clone(dialect)
	quoted["quote"], quoted["escape"], quoted["ignore_errors"] = `'"'`, `'"'`, "false"
	if _, same, err := s.sniff(ctx, f, quoted); err == nil && slices.Equal(same, names) {
		dialect["quote"], dialect["escape"] = quoted["quote"], quoted["escape"]
	}
}

// sniff detects a file's dialect: opts completed, and the names of its columns.
func (s *session) sniff(ctx context.Context, f input, opts map[string]string) (dialect map[string]string, names []string, err error) {
	// The sniffer fails when it finds other types than those given.
	ask := without(opts, []string{"columns", "auto_detect"})
	if _, set := ask["ignore_errors"]; !set {
		// So does the reading later: one bad row must not decide the dialect.
		ask["ignore_errors"] = "true"
	}
	one := []input{f}
	arg := strings.Replace(call("sniff_csv", one, ask), "(["+duckdb.Quote(literalPath(f.open))+"]", "("+duckdb.Quote(literalPath(f.open)), 1)
	rows, err := s.db.Strings(ctx, `SELECT "Delimiter", "Quote", "Escape", "Comment", "SkipRows"::VARCHAR, "HasHeader"::VARCHAR,
		"DateFormat", "TimestampFormat", unnest(list_transform("Columns", lambda c: c.name)) FROM `+arg)
	if err != nil {
		return nil, nil, err
	}
	if len(rows) == 0 {
		return nil, nil, badFile(f.Path, "no columns are found in it")
	}
	dialect = maps.Clone(opts)
	for i, name := range []string{"delim", "quote", "escape", "comment"} {
		v := rows[0][i]
		if v == "(empty)" {
			v = ""
		}
		dialect[name] = duckdb.Quote(v)
	}
	dialect["skip"], dialect["header"] = rows[0][4], rows[0][5]
	for i, name := range []string{"dateformat", "timestampformat"} {
		if v := rows[0][6+i]; v != "" {
			dialect[name] = duckdb.Quote(v)
		}
	}
	for _, r := range rows {
		names = append(names, r[8])
	}
	return dialect, names, nil
}

func compareNames(first, f input, want, got []string, header bool) error {
	if len(got) != len(want) {
		return drift(f, fmt.Sprintf("it has %d columns, %s has %d", len(got), first.Path, len(want)))
	}
	for i := range want {
		if header && got[i] != want[i] {
			return drift(f, fmt.Sprintf("column %d is %q, but %q in %s", i+1, got[i], want[i], first.Path))
		}
	}
	return nil
}

// pinJSON detects the columns over all files and fixes them.
func (s *session) pinJSON(ctx context.Context, src *plan.Source, in []input) error {
	user := without(src.Options, nil)
	if byName(user) {
		src.Options = user
		return nil
	}
	detect := without(user, outside)
	detect["hive_partitioning"] = "false"
	if _, ok := detect["ignore_errors"]; !ok && strings.Contains(detect["format"], "newline_delimited") {
		// Lines that aren't JSON are counted when they're read.
		detect["ignore_errors"] = "true"
	}
	cols, err := s.db.Describe(ctx, "SELECT * FROM "+call("read_json", in, detect))
	if err != nil {
		return err
	}
	if _, given := user["columns"]; !given {
		user["columns"] = structOf(cols)
	}
	src.Options = user
	return nil
}

// pinHive fixes which columns come from the directories' names and their types:
// detection depends on the set of files, and tasks see different ones.
func (s *session) pinHive(ctx context.Context, src *plan.Source, in []input) error {
	fn := readers[src.Kind]
	all, err := s.db.Describe(ctx, "SELECT * FROM "+call(fn, in, src.Options))
	if err != nil {
		return err
	}
	bare := without(src.Options, []string{"hive_partitioning", "hive_types", "hive_types_autocast"})
	bare["hive_partitioning"] = "false"
	own, err := s.db.Describe(ctx, "SELECT * FROM "+call(fn, in, bare))
	if err != nil {
		return err
	}
	var hive []duckdb.Column
	for _, c := range all {
		if !slices.ContainsFunc(own, func(o duckdb.Column) bool { return strings.EqualFold(o.Name, c.Name) }) {
			hive = append(hive, c)
		}
	}
	src.Options = bare
	if len(hive) > 0 {
		src.Options["hive_partitioning"], src.Options["hive_types"] = "true", structOfIdents(hive)
	}
	return nil
}

// structOf is the literal that the readers' option columns takes.
func structOf(cols []duckdb.Column) string {
	parts := make([]string, len(cols))
	for i, c := range cols {
		parts[i] = duckdb.Quote(c.Name) + ": " + duckdb.Quote(c.Type)
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// structOfIdents is the literal that the option hive_types takes.
func structOfIdents(cols []duckdb.Column) string {
	parts := make([]string, len(cols))
	for i, c := range cols {
		parts[i] = duckdb.Quote(c.Name) + ": " + c.Type
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
