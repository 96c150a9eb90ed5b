package sql

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/plan"
)

// uploadSchema is the schema under which a client's uploads are named:
// firn_upload."<id>".
const uploadSchema = "firn_upload"

// frameSchema is the schema under which cached frames are named:
// firn_cache."<id>".
const frameSchema = "firn_cache"

// rewriter is the visitor that turns a user's query into one that names nothing
// outside itself but the views of plan.Source.
type rewriter struct {
	ctx     context.Context //nolint:containedctx // a visitor that lives for one walk
	a       *Analyzer
	session plan.Session
	opts    BindOptions
	clock   clock
	src     *source
	q       QueryText

	sources []plan.Source
	// views maps what a source is to its index, so that a file or table named
	// twice is one source; tables maps the view of a table, in lower case, to
	// the table and version that has it.
	views  map[string]int
	tables map[string]string
	// filters are by the full names of tables.
	filters map[string]Filter
	// changed says whether the tree isn't the user's any more.
	changed bool
	// anonymous are the sources' table references whose view names are chosen
	// at the end, when all names of CTEs are known.
	anonymous []anonymous
	// bareClock are the clock words (current_date, …) written without quotes,
	// with their places; aliases are all names that the query gives.
	bareClock map[string]int
	aliases   map[string]bool
}

// anonymous is a table reference that waits for its view's name.
type anonymous struct {
	ref    node
	source int
}

// fail implements visitor.
func (r *rewriter) fail(n node, code commit.Code, cause, hint string) error {
	return r.src.errorAt(code, "bind query", r.q.scriptOffset(location(n)), cause, hint)
}

// location is a node's place in the query's text; 0 when the parser gave none.
func location(n node) int {
	if l, ok := n["query_location"].(json.Number); ok {
		const most = 1 << 40 // far from where adding to it overflows
		if i, err := l.Int64(); err == nil && i >= 0 && i < most {
			return int(i)
		}
	}
	return 0
}

// baseTable implements visitor.
func (r *rewriter) baseTable(n node) (any, error) {
	r.note(n)
	schema, name := text(n, "schema_name"), text(n, "table_name")
	if text(n, "catalog_name") == "" {
		switch {
		case schema == "" && (readerOf(name) != "" || strings.ContainsAny(name, "/*")):
			return r.file(n, name)
		case asciiLower(schema) == uploadSchema:
			return r.upload(n, name)
		case asciiLower(schema) == frameSchema:
			return r.frame(n, name)
		}
	}
	return r.catalogTable(n)
}

// file replaces FROM 'dir/x.parquet'.
func (r *rewriter) file(n node, path string) (any, error) {
	if n["at_clause"] != nil {
		return nil, r.fail(n, commit.CodeSQLRefused, "AT needs a catalog table; '"+path+"' is a file", "")
	}
	reader := readerOf(path)
	if reader == "" {
		return nil, r.fail(n, commit.CodeSQLRefused, "the ending of '"+path+"' doesn't say what kind of file it is",
			"Write read_parquet('"+path+"'), read_csv('"+path+"') or read_json('"+path+"').")
	}
	alias := reader
	if !strings.ContainsAny(path, "*?[") {
		base := path[strings.LastIndexByte(path, '/')+1:]
		alias, _, _ = strings.Cut(base, ".")
	}
	s := plan.Source{Kind: readers[reader].kind, Patterns: []string{path}}
	return r.use(n, s, alias), nil
}

// upload replaces FROM firn_upload."<id>".
func (r *rewriter) upload(n node, id string) (any, error) {
	if n["at_clause"] != nil {
		return nil, r.fail(n, commit.CodeSQLRefused, "AT needs a catalog table; this is an upload", "")
	}
	if r.opts.Uploads == nil {
		return nil, r.fail(n, commit.CodeSQLRefused, "there are no uploads here", "")
	}
	up, columns, err := r.opts.Uploads(id)
	if err != nil {
		return nil, err
	}
	s := plan.Source{Kind: plan.SourceUpload, Columns: columns, Upload: &up}
	return r.use(n, s, id), nil
}

// frame replaces FROM firn_cache."<id>".
func (r *rewriter) frame(n node, id string) (any, error) {
	if n["at_clause"] != nil {
		return nil, r.fail(n, commit.CodeSQLRefused, "AT needs a catalog table; this is a cached frame", "")
	}
	if r.opts.Frames == nil {
		return nil, r.fail(n, commit.CodeSQLRefused, "there are no cached frames here", "")
	}
	frame, columns, err := r.opts.Frames(id)
	if err != nil {
		return nil, err
	}
	s := plan.Source{Kind: plan.SourceFrame, Columns: columns, Frame: &frame}
	return r.use(n, s, id), nil
}

// use makes the table reference one to the source's view, under the alias it
// had or would have had.
func (r *rewriter) use(n node, s plan.Source, alias string) node {
	r.changed = true
	if a := text(n, "alias"); a != "" {
		alias = a
	}
	columns := n["column_name_alias"]
	if columns == nil {
		columns = []any{}
	}
	ref := node{
		"type": "BASE_TABLE", "alias": alias, "sample": n["sample"], "query_location": n["query_location"],
		"catalog_name": "", "schema_name": "", "table_name": "", "column_name_alias": columns, "at_clause": nil,
	}
	r.anonymous = append(r.anonymous, anonymous{ref: ref, source: r.add(s)})
	return ref
}

// add keeps each source once.
func (r *rewriter) add(s plan.Source) int {
	key := fmt.Sprintf("%q %q %q %q", s.Kind, s.View, s.Patterns, s.Options)
	if s.Upload != nil {
		key += " " + s.Upload.ID
	}
	if s.Frame != nil {
		key += " " + s.Frame.ID
	}
	if s.Flight != nil {
		key += fmt.Sprintf(" %q %q", s.Flight.Name, s.Flight.Query)
	}
	i, ok := r.views[key]
	if !ok {
		i = len(r.sources)
		r.views[key] = i
		r.sources = append(r.sources, s)
	}
	return i
}

// nameViews gives file, upload and frame sources names that no CTE has.
func (r *rewriter) nameViews(ctes map[string]bool) {
	for i := range r.sources {
		if r.sources[i].View != nil {
			continue
		}
		name := fmt.Sprintf("firn_s%d", i)
		for ctes[name] {
			name += "_"
		}
		r.sources[i].View = []string{name}
	}
	for _, a := range r.anonymous {
		a.ref["table_name"] = r.sources[a.source].View[0]
	}
}

// catalogTable pins the table and completes its name.
func (r *rewriter) catalogTable(n node) (any, error) {
	parts := tableParts(n)
	version, err := r.version(n)
	if err != nil {
		return nil, err
	}
	name, err := r.a.completeTable(r.ctx, parts, r.session)
	if err != nil {
		return nil, r.place(n, err)
	}
	view := []string{name.Catalog, strings.Join(name.Namespace, "."), name.Name}
	if len(name.Namespace) == 0 { // a path
		view[1] = "path"
	}
	if text(n, "alias") == "" && (version != "" || len(name.Namespace) == 0) {
		n["alias"] = name.Name[strings.LastIndexByte(name.Name, '/')+1:]
	}
	if version != "" {
		view[2] += "@" + version
	}
	key := fmt.Sprintf("table %q version %q", name, version)
	lower := asciiLower(viewKey(view...))
	if other, ok := r.tables[lower]; ok && other != key {
		return nil, r.fail(n, commit.CodeSQLRefused, "two tables of the query have names that differ only in case or look alike",
			"The engine can't tell them apart; read them in two statements.")
	}
	r.tables[lower], r.changed = key, true
	if _, ok := r.views[key]; !ok {
		pinned, err := r.a.Catalogs.Pin(r.ctx, name)
		if err != nil {
			return nil, r.place(n, fileHint(parts, err))
		}
		s, err := r.a.Catalogs.Scan(r.ctx, pinned, version, r.filters[name.String()])
		if err != nil {
			return nil, r.place(n, err)
		}
		s.View, s.Kind, s.Table = view, plan.SourceTable, name
		r.views[key] = len(r.sources)
		r.sources = append(r.sources, s)
	}
	n["catalog_name"], n["schema_name"], n["table_name"], n["at_clause"] = view[0], view[1], view[2], nil
	return n, nil
}

// place says where in the text an error about a table arose.
func (r *rewriter) place(n node, err error) error {
	return placed(r.src, r.q.scriptOffset(location(n)), err)
}

// fileHint helps those who wrote FROM x.parquet without quotes.
func fileHint(parts []string, err error) error {
	path := strings.Join(parts, ".")
	if readerOf(path) == "" {
		return err
	}
	return &commit.Error{
		Code: commit.CodeOf(err), Op: "resolve table", Object: path, Cause: err,
		Hint: "To read a file write its path in quotes: '" + path + "'.",
	}
}

// version reads t AT (VERSION => n): a snapshot id, or the name of a ref.
func (r *rewriter) version(n node) (string, error) {
	if n["at_clause"] == nil {
		return "", nil
	}
	at := child(n, "at_clause")
	if unit := text(at, "unit"); !strings.EqualFold(unit, "VERSION") {
		return "", r.fail(n, commit.CodeSQLRefused, "AT ("+unit+" => …) isn't supported", "Write AT (VERSION => snapshot id).")
	}
	value := child(child(at, "expr"), "value")
	switch v := value["value"].(type) {
	case json.Number:
		if _, err := v.Int64(); err == nil && text(child(value, "type"), "id") != "DECIMAL" {
			return v.String(), nil
		}
	case string:
		if v != "" {
			return v, nil
		}
	}
	return "", r.fail(n, commit.CodeSQLRefused, "the version must be a snapshot id", "Write AT (VERSION => 1234567890).")
}

// tableFunction implements visitor.
func (r *rewriter) tableFunction(n node) (any, error) {
	r.note(n)
	f := child(n, "function")
	name := asciiLower(text(f, "function_name"))
	if spec, ok := readers[name]; ok {
		return r.reader(n, f, name, spec)
	}
	if name == flightFunction {
		return r.flight(n, f)
	}
	if !tableFunctions[name] {
		return nil, r.fail(n, commit.CodeSQLRefused, "the table function "+name+" is refused: "+deniedTableFunction(name),
			"There are read_parquet, read_csv, read_json, read_ndjson, flight_sql, range, generate_series, unnest, repeat, json_each and json_tree.")
	}
	return n, nil
}

// expression implements visitor.
func (r *rewriter) expression(n node) (any, error) {
	r.note(n)
	if name := asciiLower(text(n, "function_name")); name != "" {
		if reason := deniedFunction(name); reason != "" {
			return nil, r.fail(n, commit.CodeSQLRefused, "the function "+name+" is refused: "+reason, "")
		}
		if name == "age" && len(list(n, "children")) == 1 {
			return nil, r.fail(n, commit.CodeSQLRefused, "age with one argument reads the clock of each task",
				"Write age(now()::TIMESTAMP, x): now() is the same everywhere in a job.")
		}
		if kind := clockFunctions[name]; kind != "" && len(list(n, "children")) == 0 {
			r.changed = true
			return r.clock.constant(kind, n), nil
		}
		return n, nil
	}
	if word := r.clockWord(n); word != "" {
		if _, ok := r.bareClock[word]; !ok {
			r.bareClock[word] = location(n)
		}
		r.changed = true
		return r.clock.constant(clockWords[word], n), nil
	}
	return n, nil
}

// clockWord tells current_date, which DuckDB also writes as a reference to a
// column, from a column of that name in quotes.
func (r *rewriter) clockWord(n node) string {
	name := asciiLower(wordOf(n))
	at := location(n)
	if clockWords[name] == "" || at+len(name) > len(r.q.Text) || asciiLower(r.q.Text[at:at+len(name)]) != name {
		return ""
	}
	return name
}

// note remembers the names that a query gives to things, as far as they matter.
func (r *rewriter) note(n node) {
	if _, ours := n[ownAlias]; ours {
		delete(n, ownAlias)
	} else if alias := asciiLower(text(n, "alias")); clockWords[alias] != "" {
		r.aliases[alias] = true
	}
	for _, a := range list(n, "column_name_alias") {
		if a, ok := a.(string); ok && clockWords[asciiLower(a)] != "" {
			r.aliases[asciiLower(a)] = true
		}
	}
}

// constant implements visitor: a floating point literal such as 1e5 is written
// back as 100000.0, which reads as a decimal, so its type is said.
func (r *rewriter) constant(n node) node {
	if !isDouble(n) {
		return n
	}
	return castOf("DOUBLE", fmt.Sprint(child(n, "value")["value"]), n)
}

func isDouble(n node) bool {
	return text(n, "class") == "CONSTANT" && text(child(child(n, "value"), "type"), "id") == "DOUBLE"
}

// selectItem implements visitor: an item without an alias in which something
// will be replaced keeps the name that it had, which is its text.
func (r *rewriter) selectItem(item node) error {
	if text(item, "alias") != "" {
		r.note(item) // constants aren't visited later
		return nil
	}
	if text(item, "class") == "COLUMN_REF" {
		word := wordOf(item)
		if clockWords[asciiLower(word)] == "" {
			return nil
		}
		item["alias"] = word
	} else {
		if !replaceable(item) {
			return nil
		}
		name, err := r.formatExpression(item)
		if err != nil {
			return r.fail(item, commit.CodeSQLSyntax, err.Error(), "")
		}
		item["alias"] = name
	}
	item[ownAlias] = true
	return nil
}

// ownAlias marks an item whose alias isn't the user's until it is visited.
const ownAlias = "firn_own_alias"

// wordOf gives the name of a reference to a column that has one part.
func wordOf(n node) string {
	names := list(n, "column_names")
	if len(names) != 1 || text(n, "class") != "COLUMN_REF" {
		return ""
	}
	name, _ := names[0].(string)
	return name
}

// replaceable says whether a part of the expression will be replaced and the
// expression stands for one column.
func replaceable(item node) bool {
	found, star := false, false
	search(item, func(n node) {
		kind := text(n, "type")
		star = star || text(n, "class") == "STAR"
		found = found || clockFunctions[asciiLower(text(n, "function_name"))] != "" || clockWords[asciiLower(wordOf(n))] != "" ||
			kind == "BASE_TABLE" || kind == "TABLE_FUNCTION" || isDouble(n)
	})
	return found && !star
}

// search calls f for every object in a tree, always in the same order.
func search(v any, f func(node)) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			search(e, f)
		}
	case node:
		f(v)
		if v["class"] == "CONSTANT" {
			return
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			search(v[key], f)
		}
	}
}

// formatExpression writes an expression as SQL.
func (r *rewriter) formatExpression(expr node) (string, error) {
	tree, err := encodeTree(expressionTree(expr))
	if err != nil {
		return "", err
	}
	s, err := r.a.Parser.FormatSelect(r.ctx, tree)
	if err != nil {
		return "", err
	}
	s, ok := strings.CutPrefix(s, "SELECT ")
	if !ok {
		return "", fmt.Errorf("an expression was written as %q", s)
	}
	return s, nil
}
