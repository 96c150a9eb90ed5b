package sql

import (
	"maps"
	"slices"
	"strings"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/plan"
)

// readerSpec is one of DuckDB's file readers: the kind of source that it
// becomes and the named arguments that it may have.
type readerSpec struct {
	kind    plan.SourceKind
	options map[string]bool
	// format is set for readers that are another with a fixed format.
	format string
}

var (
	parquetOptions = setOf("binary_as_string union_by_name hive_partitioning hive_types hive_types_autocast can_have_nan")
	csvOptions     = setOf("all_varchar allow_quoted_nulls auto_detect auto_type_candidates column_names column_types columns " +
		"comment compression date_format dateformat decimal_separator delim delimiter dtypes encoding escape " +
		"force_not_null header hive_partitioning hive_types hive_types_autocast max_line_size maximum_line_size names new_line " +
		"normalize_names null null_padding nullstr quote sample_size sep skip strict_mode thousands timestamp_format " +
		"timestampformat types union_by_name")
	jsonOptions = setOf("auto_detect columns compression convert_strings_to_integers date_format dateformat field_appearance_threshold " +
		"format hive_partitioning hive_types hive_types_autocast map_inference_threshold maximum_depth maximum_object_size " +
		"maximum_sample_files records sample_size timestamp_format timestampformat union_by_name")
)

// readers are the readers by name.
var readers = map[string]readerSpec{
	"read_parquet":     {kind: plan.SourceParquet, options: parquetOptions},
	"parquet_scan":     {kind: plan.SourceParquet, options: parquetOptions},
	"read_csv":         {kind: plan.SourceCSV, options: csvOptions},
	"read_csv_auto":    {kind: plan.SourceCSV, options: csvOptions},
	"read_json":        {kind: plan.SourceJSON, options: jsonOptions},
	"read_json_auto":   {kind: plan.SourceJSON, options: jsonOptions},
	"read_ndjson":      {kind: plan.SourceJSON, options: jsonOptions, format: "'newline_delimited'"},
	"read_ndjson_auto": {kind: plan.SourceJSON, options: jsonOptions, format: "'newline_delimited'"},
}

// refusedOptions are arguments that people know from DuckDB, with what to do
// instead.
var refusedOptions = map[string]string{
	"ignore_errors":           "Use --reject-limit N: it counts and shows what is left out.",
	"store_rejects":           "Use --reject-limit N: it counts and shows what is left out.",
	"rejects_table":           "Use --reject-limit N: it counts and shows what is left out.",
	"rejects_scan":            "Use --reject-limit N: it counts and shows what is left out.",
	"rejects_limit":           "Use --reject-limit N: it counts and shows what is left out.",
	"filename":                "A task may read a staged copy or a part of a file, whose name isn't the source's.",
	"file_row_number":         "A task may read a part of a file.",
	"schema":                  "Columns are read by their names.",
	"encryption_config":       "Encrypted files can't be read.",
	"parallel":                "The tasks decide what is read in parallel.",
	"buffer_size":             "The engine decides it by its memory.",
	"explicit_cardinality":    "The plan takes it from the files.",
	"prefetch_all_row_groups": "The engine decides it.",
}

// readerOf names the reader for a path by its ending, "" when it's no data
// file's.
func readerOf(path string) string {
	p := asciiLower(path)
	for _, z := range []string{".gz", ".zst"} {
		if base, ok := strings.CutSuffix(p, z); ok && !strings.HasSuffix(base, ".parquet") {
			p = base
			break
		}
	}
	for _, e := range []struct{ ending, reader string }{
		{".parquet", "read_parquet"},
		{".csv", "read_csv"},
		{".tsv", "read_csv"},
		{".json", "read_json"},
		{".jsonl", "read_ndjson"},
		{".ndjson", "read_ndjson"},
	} {
		if strings.HasSuffix(p, e.ending) {
			return e.reader
		}
	}
	return ""
}

// reader replaces read_parquet(…) and its like.
func (r *rewriter) reader(n, f node, name string, spec readerSpec) (any, error) {
	if o := text(n, "with_ordinality"); o != "" && o != "WITHOUT_ORDINALITY" {
		return nil, r.fail(n, commit.CodeSQLRefused, "WITH ORDINALITY isn't supported for files: a task may read a part of them", "")
	}
	s := plan.Source{Kind: spec.kind, Options: map[string]string{}}
	for _, arg := range list(f, "children") {
		arg, _ := arg.(node)
		option, value := namedArgument(arg)
		if option == "" {
			paths, ok := stringsOf(value)
			if !ok || s.Patterns != nil {
				return nil, r.fail(arg, commit.CodeSQLReaderArgument, name+" takes a path, or a list of paths, written out",
					"Write "+name+"('file') or "+name+"(['file', 'file']).")
			}
			s.Patterns = paths
			continue
		}
		if left := child(arg, "left"); left != nil {
			arg = left // the place of the name
		}
		if err := r.option(&s, name, spec, option, arg, value); err != nil {
			return nil, err
		}
	}
	if len(s.Patterns) == 0 {
		return nil, r.fail(n, commit.CodeSQLReaderArgument, name+" needs a path", "Write "+name+"('file').")
	}
	if spec.format != "" {
		s.Options["format"] = spec.format
	}
	if len(s.Options) == 0 {
		s.Options = nil
	}
	return r.use(n, s, name), nil
}

// option checks and adds one named argument.
func (r *rewriter) option(s *plan.Source, reader string, spec readerSpec, option string, arg, value node) error {
	if why, ok := refusedOptions[option]; ok {
		return r.fail(arg, commit.CodeSQLReaderArgument, "the argument "+option+" of "+reader+" is refused", why)
	}
	known := slices.Sorted(maps.Keys(spec.options))
	if !spec.options[option] {
		hint := reader + " takes " + strings.Join(known, ", ") + "."
		if near := nearest(option, known); near != "" {
			hint = "Did you mean " + near + "? " + hint
		}
		return r.fail(arg, commit.CodeSQLReaderArgument, reader+" has no argument "+option, hint)
	}
	if _, ok := s.Options[option]; ok {
		return r.fail(arg, commit.CodeSQLReaderArgument, "the argument "+option+" stands twice", "")
	}
	if b, ok := boolOf(value); ok {
		s.Options[option] = b
		return nil
	}
	if !isLiteral(value) && (option != "hive_types" || !namesTypes(value)) {
		return r.fail(arg, commit.CodeSQLReaderArgument, "the argument "+option+" must be written out as a literal", "")
	}
	value["alias"] = ""
	written, err := r.formatExpression(value)
	if err != nil {
		return r.fail(arg, commit.CodeSQLReaderArgument, "the argument "+option+" can't be read: "+err.Error(), "")
	}
	s.Options[option] = written
	return nil
}

// namedArgument reads name = value, name := value and name => value; the name
// is in lower case and empty for an argument by position.
func namedArgument(arg node) (name string, value node) {
	if text(arg, "type") == "COMPARE_EQUAL" {
		left := child(arg, "left")
		if names := list(left, "column_names"); text(left, "class") == "COLUMN_REF" && len(names) == 1 {
			name, _ = names[0].(string)
			return asciiLower(name), child(arg, "right")
		}
	}
	return asciiLower(text(arg, "alias")), arg
}

// boolOf reads true and false, which the parser gives as casts of a string.
func boolOf(n node) (string, bool) {
	if text(n, "class") != "CAST" || text(child(n, "cast_type"), "id") != "BOOLEAN" {
		return "", false
	}
	switch s, _ := stringOf(child(n, "child")); s {
	case "t":
		return "true", true
	case "f":
		return "false", true
	}
	return "", false
}

// namesTypes says whether an argument is of the form {'year': INT}: hive_types
// takes its types as bare words, which parse as names of columns.
func namesTypes(n node) bool {
	items := list(n, "children")
	for _, item := range items {
		item, _ := item.(node)
		if text(item, "class") != "COLUMN_REF" || len(list(item, "column_names")) != 1 {
			return false
		}
	}
	return text(n, "function_name") == "struct_pack" && len(items) > 0
}

// stringOf reads a string literal.
func stringOf(n node) (string, bool) {
	v := child(n, "value")
	s, ok := v["value"].(string)
	return s, ok && text(n, "class") == "CONSTANT" && text(child(v, "type"), "id") == "VARCHAR"
}

// stringsOf reads a string literal or a list of them.
func stringsOf(n node) ([]string, bool) {
	if s, ok := stringOf(n); ok {
		return []string{s}, true
	}
	items := list(n, "children")
	if text(n, "function_name") != "list_value" || len(items) == 0 {
		return nil, false
	}
	var out []string
	for _, item := range items {
		item, _ := item.(node)
		s, ok := stringOf(item)
		if !ok {
			return nil, false
		}
		out = append(out, s)
	}
	return out, true
}

// isLiteral says whether an expression is a constant without any function that
// isn't a way to write one down: lists, structs, maps, casts, a sign.
func isLiteral(n node) bool {
	switch text(n, "class") {
	case "CONSTANT":
		return true
	case "CAST":
		return isLiteral(child(n, "child"))
	case "FUNCTION":
		switch text(n, "function_name") {
		case "list_value", "struct_pack", "row", "map", "-":
		default:
			return false
		}
		for _, c := range list(n, "children") {
			c, _ := c.(node)
			if !isLiteral(c) {
				return false
			}
		}
		return true
	}
	return false
}
