package sql

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/apache/iceberg-go"

	"github.com/firn-project/firn/commit"
	format "github.com/firn-project/firn/format/iceberg"
	"github.com/firn-project/firn/plan"
)

// target is the table of an INSERT, read and checked.
type target struct {
	pinned plan.Pinned
	// fields are the columns, types their DuckDB types.
	fields      []field
	types       []string
	partitioned bool
	// fileSize and distribution come from the table's properties.
	fileSize     int64
	distribution string
}

// field is a column of a target.
type field struct {
	Name     string
	ID       int
	Required bool
	// Type says what literals may become it, whatever the table's format.
	Type iceberg.Type
	// widens says whether values of a DuckDB type become it without a loss.
	widens func(from string) bool
}

// bindInsert makes the plan of an INSERT: commit ▸ write ▸ [exchange ▸] query.
func (a *Analyzer) bindInsert(ctx context.Context, src *source, in *Insert, session plan.Session, opts BindOptions) (plan.Node, error) {
	if opts.JobID == "" || strings.ContainsAny(opts.JobID, "/\\") {
		return nil, fmt.Errorf("sql: %q can't be a job id: it is part of a path", opts.JobID)
	}
	name, err := a.completeTable(ctx, in.Target.Parts(), session)
	if err != nil {
		return nil, placed(src, in.Target[0].Offset, err)
	}
	if err := a.Writable(ctx, name); err != nil {
		return nil, placed(src, in.Target[0].Offset, err)
	}
	pinned, err := a.Catalogs.Pin(ctx, name)
	if err != nil {
		return nil, placed(src, in.Target[0].Offset, err)
	}
	t, err := readTarget(pinned)
	if err != nil {
		return nil, err
	}
	b, err := a.bindQuery(ctx, src, in.Query, session, opts, func(items [][]node) bool { return t.castStrings(in, items) })
	if err != nil {
		return nil, err
	}
	from, err := t.assign(src, in, b.probe.Columns)
	if err != nil {
		return nil, err
	}
	query, columns, err := t.cast(src, in, b, from)
	if err != nil {
		return nil, err
	}
	return t.plan(b.plan(query, columns, opts), b.few(), opts), nil
}

// placed adds to an error about a table where in the script the table is named.
func placed(src *source, offset int, err error) error {
	e, ok := errors.AsType[*commit.Error](err)
	if !ok {
		return err
	}
	line, column, _ := src.place(offset)
	c := *e
	c.Object = strings.TrimSpace(fmt.Sprintf("%s at line %d, column %d", c.Object, line, column))
	return &c
}

// defaultFileSize is Iceberg's default for write.target-file-size-bytes.
const defaultFileSize = 512 << 20

// readTarget reads the table's schema and properties and refuses, before
// anything is written, what can't be written.
func readTarget(p plan.Pinned) (*target, error) {
	refuse := func(hint, cause string, args ...any) error {
		return &commit.Error{
			Code: commit.CodeSQLTargetUnsupported, Op: "insert into", Object: p.Name.String(),
			Cause: fmt.Errorf(cause, args...), Hint: hint,
		}
	}
	if p.Format == "delta" {
		return readDeltaTarget(p, refuse)
	}
	if p.Format != "iceberg" && p.Format != "" {
		return nil, refuse("", "tables of the format %s can't be written", p.Format)
	}
	if p.FormatVersion < 1 || p.FormatVersion > 2 {
		return nil, refuse("Firn writes versions 1 and 2.", "the table has format version %d", p.FormatVersion)
	}
	t := &target{pinned: p, fileSize: defaultFileSize}
	schema, err := format.ParseSchema(p.SchemaJSON)
	if err != nil {
		return nil, refuse("", "its schema can't be read: %w", err)
	}
	spec, err := format.ParseSpec(p.SpecJSON, schema)
	if err != nil {
		return nil, refuse("", "its partition spec can't be read: %w", err)
	}
	t.partitioned = !spec.IsUnpartitioned()
	for _, f := range schema.Fields() {
		d, err := format.DuckDBType(f.Type)
		if err != nil {
			return nil, refuse("", "its column %s can't be written: %w", f.Name, err)
		}
		t.types = append(t.types, d)
		t.fields = append(t.fields, field{Name: f.Name, ID: f.ID, Required: f.Required, Type: f.Type, widens: func(from string) bool {
			return format.Widens(from, f.Type)
		}})
	}
	if f := p.Properties["write.format.default"]; f != "" && !strings.EqualFold(f, "parquet") {
		return nil, refuse("Firn writes Parquet only.", "its property write.format.default is %s", f)
	}
	if s, ok := p.Properties["write.target-file-size-bytes"]; ok {
		if t.fileSize, err = strconv.ParseInt(strings.TrimSpace(s), 10, 64); err != nil || t.fileSize <= 0 {
			return nil, refuse("It must be a whole number above 0.", "its property write.target-file-size-bytes is %q", s)
		}
	}
	switch m := strings.ToLower(p.Properties["write.distribution-mode"]); m {
	case "":
		t.distribution = "hash"
	case "none", "hash", "range":
		t.distribution = m
	default:
		return nil, refuse("It is none, hash or range.", "its property write.distribution-mode is %q", m)
	}
	return t, nil
}

// find looks a column up: as written first, then without regard to case. -1
// when there's none, -2 when there are several.
func (t *target) find(name string) int {
	found := -1
	for i, f := range t.fields {
		if f.Name == name {
			return i
		}
		if strings.EqualFold(f.Name, name) {
			if found >= 0 {
				found = -2
				continue
			}
			found = i
		}
	}
	return found
}

func (t *target) names() []string {
	out := make([]string, len(t.fields))
	for i, f := range t.fields {
		out[i] = f.Name
	}
	return out
}

// assign says which column of the query goes to which of the table: for each
// field its index in columns, or -1 for NULL.
func (t *target) assign(src *source, in *Insert, columns []plan.Column) ([]int, error) {
	from := make([]int, len(t.fields))
	for i := range from {
		from[i] = -1
	}
	var err error
	switch {
	case in.ByName:
		err = t.assignByName(src, in, columns, from)
	case in.Columns != nil:
		err = t.assignList(src, in, columns, from)
	case len(columns) != len(t.fields):
		err = t.countError(src, in, len(columns), len(t.fields), "the table "+t.pinned.Name.String()+" has")
	default:
		for i := range from {
			from[i] = i
		}
	}
	if err != nil {
		return nil, err
	}
	for i, f := range t.fields {
		if from[i] < 0 && f.Required {
			return nil, src.errorAt(commit.CodeSQLRequiredColumn, "insert into "+t.pinned.Name.String(), in.Target[0].Offset,
				"the column "+f.Name+" is NOT NULL and gets no value", "Give it a value of type "+t.types[i]+".")
		}
	}
	return from, nil
}

func (t *target) countError(src *source, in *Insert, got, want int, who string) error {
	return src.errorAt(commit.CodeSQLColumns, "insert into "+t.pinned.Name.String(), in.Query.Offset,
		fmt.Sprintf("the query gives %s, %s %d", count(got, "column"), who, want),
		"Name the columns, as in INSERT INTO t (a, b) …, or use INSERT INTO t BY NAME …; columns left out become NULL.")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (t *target) assignByName(src *source, in *Insert, columns []plan.Column, from []int) error {
	for k, c := range columns {
		if err := t.put(src, Ident{Name: c.Name, Offset: in.Query.Offset}, k, from); err != nil {
			return err
		}
	}
	return nil
}

func (t *target) assignList(src *source, in *Insert, columns []plan.Column, from []int) error {
	for k, c := range in.Columns {
		if err := t.put(src, c, k, from); err != nil {
			return err
		}
	}
	if len(columns) != len(in.Columns) {
		return t.countError(src, in, len(columns), len(in.Columns), "the list of columns has")
	}
	return nil
}

// put assigns the query's column k to the named one.
func (t *target) put(src *source, name Ident, k int, from []int) error {
	op := "insert into " + t.pinned.Name.String()
	i := t.find(name.Name)
	switch {
	case i == -2:
		return src.errorAt(commit.CodeSQLUnknownColumn, op, name.Offset,
			"several columns of the table are called "+name.Name+", but for case", "Write the name exactly.")
	case i < 0:
		hint := "Its columns are " + strings.Join(t.names(), ", ") + "."
		if near := nearest(name.Name, t.names()); near != "" {
			hint = "Did you mean " + near + "? " + hint
		}
		return src.errorAt(commit.CodeSQLUnknownColumn, op, name.Offset, "the table has no column "+name.Name, hint)
	case from[i] >= 0:
		return src.errorAt(commit.CodeSQLColumns, op, name.Offset, "the column "+t.fields[i].Name+" is given twice", "")
	}
	from[i] = k
	return nil
}

// cast writes the query with the table's columns around the user's.
func (t *target) cast(src *source, in *Insert, b *bound, from []int) (string, []plan.Column, error) {
	var s strings.Builder
	columns := make([]plan.Column, len(t.fields))
	s.WriteString("SELECT ")
	for i, f := range t.fields {
		value := "NULL"
		if k := from[i]; k >= 0 {
			if err := t.fits(src, in, b, i, k); err != nil {
				return "", nil, err
			}
			value = fmt.Sprintf("q.c%d", k+1)
		}
		if i > 0 {
			s.WriteString(", ")
		}
		fmt.Fprintf(&s, "CAST(%s AS %s) AS %s", value, t.types[i], QuoteIdent(f.Name))
		columns[i] = plan.Column{Name: f.Name, Type: t.types[i], FieldID: f.ID, Required: f.Required}
	}
	s.WriteString(" FROM (" + b.sql + ") AS q(")
	for k := range b.probe.Columns {
		if k > 0 {
			s.WriteString(", ")
		}
		fmt.Fprintf(&s, "c%d", k+1)
	}
	s.WriteString(")")
	return s.String(), columns, nil
}

// fits refuses a conversion that could lose something, unless the values are
// literals, which can be seen.
func (t *target) fits(src *source, in *Insert, b *bound, i, k int) error {
	have, f := b.probe.Columns[k], t.fields[i]
	if f.widens(have.Type) {
		return nil
	}
	if k < len(b.items) && allLiterals(b.items[k], f.Type) {
		return nil
	}
	expr := quoteIfNeeded(have.Name)
	if literal := k < len(b.items) && len(b.items[k]) == 1 && text(b.items[k][0], "class") == "CONSTANT"; literal || strings.Contains(have.Name, "(") {
		expr = have.Name // DuckDB calls a column without a name by its expression
	}
	hint := fmt.Sprintf("Write CAST(%s AS %s) if rows that don't fit may fail the statement.", expr, t.types[i])
	const zoned = "TIMESTAMP WITH TIME ZONE"
	if (have.Type == zoned) != (t.types[i] == zoned) && strings.HasPrefix(have.Type, "TIMESTAMP") && strings.HasPrefix(t.types[i], "TIMESTAMP") {
		hint = fmt.Sprintf("Write %s AT TIME ZONE 'UTC', with the zone that is meant.", expr)
	}
	return src.errorAt(commit.CodeSQLTypeMismatch, "insert into "+t.pinned.Name.String(), in.Query.Offset,
		fmt.Sprintf("the query's column %d (%s) is %s and the table's column %s is %s, which may lose something",
			k+1, have.Name, have.Type, f.Name, t.types[i]), hint)
}

// plan puts the write and the commit over a query. few says that its rows are so
// few that one writer takes them all.
func (t *target) plan(q *plan.Query, few bool, opts BindOptions) plan.Node {
	layout := t.context("").Layout
	var node plan.Node = q
	var bytes int64
	for _, s := range q.Sources {
		bytes += sourceBytes(s)
	}
	switch {
	case few && !q.Parallel: // each partition's rows come to one writer anyway
	case t.partitioned && t.distribution != "none":
		if t.distribution == "range" {
			q.Why += "; write.distribution-mode = range is carried out as hash"
		}
		n := opts.Slots
		if q.Parallel || bytes > spreadBytes {
			n *= hashTasks
		}
		node = &plan.Exchange{Input: q, How: plan.ExchangeHash, Partitions: n, Layout: &layout}
	case opts.Adaptive && !t.partitioned && len(q.Partitions) > manyTasks*opts.Slots && bytes/int64(len(q.Partitions)) < t.fileSize:
		// Each of them would write a file of its own, or more. What they give is
		// cut into files' worths when it is known.
		node = &plan.Exchange{Input: q, How: plan.ExchangeSingle, Partitions: 1}
	case !t.partitioned && (!q.Parallel || len(q.Partitions) < 2) && bytes > spreadBytes:
		node = &plan.Exchange{Input: q, How: plan.ExchangeRoundRobin, Partitions: opts.Slots}
	}
	prefix := t.pinned.JobPrefix(opts.JobID)
	return &plan.Commit{
		Input:  &plan.Write{Input: node, Context: t.context(prefix)},
		Target: t.pinned, Branch: commit.MainBranch, Operation: commit.OperationAppend, Prefix: prefix,
	}
}

// External is the plan of a write whose files others write: it refuses a table that
// an INSERT would be refused, too.
func External(p plan.Pinned, jobID string) (*plan.Commit, error) {
	t, err := readTarget(p)
	if err != nil {
		return nil, err
	}
	prefix := p.JobPrefix(jobID)
	return &plan.Commit{
		Input:  &plan.External{Context: t.context(prefix)},
		Target: p, Branch: commit.MainBranch, Operation: commit.OperationAppend, Prefix: prefix,
	}, nil
}

// context is what it takes to write below the prefix.
func (t *target) context(prefix string) plan.WriteContext {
	return plan.WriteContext{
		Table: t.pinned.Name, TableUUID: t.pinned.UUID, FormatVersion: t.pinned.FormatVersion,
		Layout:        plan.Layout{Format: cmp.Or(t.pinned.Format, "iceberg"), SchemaJSON: t.pinned.SchemaJSON, SpecJSON: t.pinned.SpecJSON},
		SortOrderJSON: t.pinned.SortOrderJSON, Properties: t.pinned.Properties, Prefix: prefix,
		TargetFileSize: t.fileSize, Storage: t.pinned.Storage,
	}
}
