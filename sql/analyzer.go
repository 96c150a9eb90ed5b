package sql

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/plan"
)

// Analyzer turns statements into plans and runs those that only touch a
// catalog. It is safe for concurrent use when its parts are.
type Analyzer struct {
	Catalogs Catalogs
	Binder   Binder
	Parser   TreeParser
	// Flight are the Flight SQL engines that are sources; nil for none.
	Flight FlightSources
}

// BindOptions is what a job fixes for its statement.
type BindOptions struct {
	// JobID becomes part of the data prefix.
	JobID string
	// Now is what now() and its like give, everywhere in the job.
	Now time.Time
	// TimeZone is an IANA name; empty for UTC.
	TimeZone string
	// RejectLimit is how many rows may be unreadable, over the whole job.
	RejectLimit int64
	// Slots is the number of task slots that the job may use, 1 or more.
	Slots int
	// Adaptive: stages are cut into tasks when the sizes of what they read are
	// known.
	Adaptive bool
	// Uploads looks up a client's spooled stream; nil when there are none.
	Uploads func(id string) (plan.Upload, []plan.Column, error)
	// Frames looks up a cached frame; nil when there are none.
	Frames func(id string) (plan.Frame, []plan.Column, error)
	// RunQuery has a Flight SQL engine run a query, and gives the source that its
	// endpoints are; nil when there are no engines.
	RunQuery func(ctx context.Context, source, query string) (plan.Source, error)
}

// Bind turns an INSERT into a plan with a commit on top, and a SELECT into a
// *plan.Query. EXPLAIN gives the plan of what it explains. Errors are
// *commit.Error, or wrap one.
func (a *Analyzer) Bind(ctx context.Context, st Statement, session plan.Session, opts BindOptions) (plan.Node, error) {
	if st.src == nil {
		return nil, errors.New("sql: the statement isn't one that Parse gave")
	}
	opts.Slots = max(opts.Slots, 1)
	switch body := st.Body.(type) {
	case *Select:
		b, err := a.bindQuery(ctx, st.src, body.Query, session, opts, nil)
		if err != nil {
			return nil, err
		}
		text, columns := b.result()
		return b.plan(text, columns, opts), nil
	case *Insert:
		return a.bindInsert(ctx, st.src, body, session, opts)
	case *Explain:
		return a.Bind(ctx, body.Statement, session, opts)
	}
	return nil, fmt.Errorf("sql: %s has no plan", st.Kind)
}

// bound is a query whose names are resolved and whose sources are known.
type bound struct {
	// sql names nothing but the sources' views.
	sql   string
	probe plan.ProbeResult
	// items are, for each column of the query, the expressions that make it,
	// one for each row of a VALUES list or branch of a UNION; nil where the
	// text doesn't show them.
	items [][]node
	// values: the query is a VALUES list.
	values bool
}

// bindQuery parses, rewrites and binds a query: by a probe, if it takes one. values, if it isn't nil, may
// change the rows of a query that is a VALUES list, given by column, and says
// whether it did.
func (a *Analyzer) bindQuery(ctx context.Context, src *source, q QueryText, session plan.Session, opts BindOptions, values func([][]node) bool) (*bound, error) {
	raw, err := a.Parser.ParseSelect(ctx, q.Text)
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		return nil, syntaxError(src, q, err)
	}
	tree, err := decodeTree(raw)
	if err != nil {
		return nil, src.syntax(q.Offset, err.Error(), "A number in it may be too large.")
	}
	clock, err := newClock(opts.Now, opts.TimeZone)
	if err != nil {
		return nil, &commit.Error{Code: commit.CodeSQLBind, Op: "bind query", Cause: err, Hint: "Use a name such as Europe/Berlin or UTC."}
	}
	r := &rewriter{
		ctx: ctx, a: a, session: session, opts: opts, clock: clock, src: src, q: q,
		views: map[string]int{}, tables: map[string]string{}, bareClock: map[string]int{}, aliases: map[string]bool{},
	}
	b := &bound{items: topItems(rootOf(tree))} // as written: the walk changes constants
	b.values = plainValues(rootOf(tree))
	if values != nil && text(child(rootOf(tree), "from_table"), "type") == "EXPRESSION_LIST" {
		r.changed = values(b.items)
	}
	r.filters = a.filters(ctx, tree, session)
	w := &walker{v: r, ctes: map[string]bool{}}
	if _, err := w.walk(tree, nil, 0); err != nil {
		return nil, err
	}
	r.nameViews(w.ctes)
	if b.sql = q.Text; r.changed {
		if b.sql, err = a.formatAndVerify(ctx, tree, r.sources); err != nil {
			return nil, err
		}
	}
	if text(child(rootOf(tree), "from_table"), "type") == "SHOW_REF" && !strings.HasPrefix(b.sql, "SELECT") {
		b.sql = "SELECT * FROM (" + b.sql + ")" // so that it can stand where a query can
	}
	if probe, ok := bindConstants(rootOf(tree)); ok && len(r.sources) == 0 {
		b.probe = probe
		return b, nil
	}
	if err := r.runQueries(); err != nil {
		return nil, err
	}
	b.probe, err = a.Binder.Probe(ctx, plan.ProbeRequest{SQL: b.sql, Sources: r.sources})
	if err != nil {
		if commit.CodeOf(err) != "" || ctx.Err() != nil {
			return nil, err
		}
		return nil, &commit.Error{Code: commit.CodeSQLBind, Op: "bind query", Cause: err}
	}
	if len(b.probe.Sources) != len(r.sources) {
		return nil, &commit.Error{Code: commit.CodeSQLBind, Op: "bind query", Cause: fmt.Errorf("the probe answered for %d sources of %d", len(b.probe.Sources), len(r.sources))}
	}
	return b, r.checkClockWords(b.probe.Sources)
}

// syntaxError turns the parser's complaint into one about the script.
func syntaxError(src *source, q QueryText, err error) error {
	se, ok := errors.AsType[SyntaxError](err)
	if !ok {
		return &commit.Error{Code: commit.CodeSQLBind, Op: "parse query", Cause: err}
	}
	return src.syntax(q.scriptOffset(max(se.Offset(), 0)), se.Error(), "")
}

// formatAndVerify writes the tree as text and reads that again; see verifier.
func (a *Analyzer) formatAndVerify(ctx context.Context, tree node, sources []plan.Source) (string, error) {
	failed := func(err error) error {
		return &commit.Error{Code: commit.CodeSQLBind, Op: "bind query", Cause: fmt.Errorf("the query can't be written back: %w", err)}
	}
	raw, err := encodeTree(tree)
	if err != nil {
		return "", failed(err)
	}
	out, err := a.Parser.FormatSelect(ctx, raw)
	if err != nil {
		return "", failed(err)
	}
	if raw, err = a.Parser.ParseSelect(ctx, out); err != nil {
		return "", failed(err)
	}
	again, err := decodeTree(raw)
	if err != nil {
		return "", failed(err)
	}
	if err := Verify(again, sources); err != nil {
		return "", err
	}
	return out, nil
}

// checkClockWords refuses current_date and its like where something of the
// query has that name: DuckDB would take the column, the standard the date.
func (r *rewriter) checkClockWords(sources []plan.Source) error {
	for _, s := range sources {
		for _, c := range s.Columns {
			r.aliases[asciiLower(c.Name)] = true
		}
	}
	for word, at := range r.bareClock {
		if r.aliases[word] {
			return r.src.errorAt(commit.CodeSQLRefused, "bind query", r.q.scriptOffset(at),
				word+" is both a function and the name of a column here",
				`Write "`+word+`" for the column, or now()::`+clockWords[word]+" for the time.")
		}
	}
	return nil
}

// topItems collects the expressions behind each column of a query; nil when a
// star or anything else hides them.
func topItems(root node) [][]node {
	switch text(root, "type") {
	case "SET_OPERATION_NODE":
		if text(root, "setop_type") != "UNION" {
			return nil
		}
		left, right := topItems(child(root, "left")), topItems(child(root, "right"))
		if left == nil || len(left) != len(right) {
			return nil
		}
		for i := range left {
			left[i] = append(left[i], right[i]...)
		}
		return left
	case "SELECT_NODE":
		from, items := child(root, "from_table"), list(root, "select_list")
		if text(from, "type") == "EXPRESSION_LIST" && len(items) == 1 && plainStar(items[0]) {
			return valuesItems(list(from, "values"))
		}
		out := make([][]node, len(items))
		for i, item := range items {
			n, _ := item.(node)
			star := false
			search(n, func(n node) { star = star || text(n, "class") == "STAR" })
			if star {
				return nil
			}
			out[i] = []node{n}
		}
		return out
	}
	return nil
}

// plainValues says whether a query is a VALUES list and nothing around it.
func plainValues(root node) bool {
	items := list(root, "select_list")
	return text(root, "type") == "SELECT_NODE" && text(child(root, "from_table"), "type") == "EXPRESSION_LIST" &&
		len(items) == 1 && plainStar(items[0])
}

// plainStar says whether an item is * and nothing more.
func plainStar(item any) bool {
	n, _ := item.(node)
	return text(n, "class") == "STAR" && n["expr"] == nil && text(n, "relation_name") == "" &&
		len(list(n, "exclude_list"))+len(list(n, "replace_list"))+len(list(n, "rename_list"))+len(list(n, "qualified_exclude_list")) == 0
}

func valuesItems(rows []any) [][]node {
	var out [][]node
	for _, row := range rows {
		row, _ := row.([]any)
		if out == nil {
			out = make([][]node, len(row))
		}
		if len(row) != len(out) {
			return nil
		}
		for i, item := range row {
			n, _ := item.(node)
			out[i] = append(out[i], n)
		}
	}
	return out
}
