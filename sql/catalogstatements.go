package sql

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/apache/iceberg-go"

	"github.com/firn-project/firn/commit"
	format "github.com/firn-project/firn/format/iceberg"
	"github.com/firn-project/firn/plan"
)

// Result is what a catalog statement gives.
type Result struct {
	// Statement is the kind of the statement.
	Statement string
	// Columns and Rows are empty for statements that give no rows. A value is
	// a string, a bool, an int64 or nil.
	Columns []string
	Rows    [][]any
	// Session is the caller's, changed by USE.
	Session plan.Session
}

// RunCatalogStatement runs everything but INSERT, SELECT and EXPLAIN. Errors
// are *commit.Error, or wrap one.
func (a *Analyzer) RunCatalogStatement(ctx context.Context, st Statement, session plan.Session) (Result, error) {
	if st.src == nil {
		return Result{}, errors.New("sql: the statement isn't one that Parse gave")
	}
	r := Result{Statement: st.Kind, Session: session}
	var err error
	switch body := st.Body.(type) {
	case *CreateTable:
		err = a.createTable(ctx, st.src, body, session)
	case *DropTable:
		var name commit.TableName
		if name, err = a.completeTable(ctx, body.Name.Parts(), session); err == nil {
			err = a.Catalogs.DropTable(ctx, name, body.IfExists)
		}
	case *CreateNamespace:
		err = a.createNamespace(ctx, body, session)
	case *DropNamespace:
		var catalog string
		var ns []string
		if catalog, ns, err = a.completeNamespace(ctx, body.Name.Parts(), session); err == nil {
			err = a.Catalogs.DropNamespace(ctx, catalog, ns, body.IfExists)
		}
	case *CreateCatalog:
		err = a.createCatalog(ctx, body)
	case *DropCatalog:
		err = a.dropCatalog(ctx, body, &r.Session)
	case *CheckCatalog:
		err = a.checkCatalog(ctx, body, &r)
	case *CreateSource:
		err = a.createSource(ctx, body)
	case *DropSource:
		err = a.dropSource(ctx, body)
	case *Show:
		err = a.show(ctx, body, session, &r)
	case *ShowCreateTable:
		err = a.showCreate(ctx, body, session, &r)
	case *Describe:
		err = a.describe(ctx, body, session, &r)
	case *DescribeHistory:
		var name commit.TableName
		if name, err = a.completeTable(ctx, body.Name.Parts(), session); err != nil {
			break
		}
		var versions []TableVersion
		if versions, err = a.Catalogs.History(ctx, name); err == nil {
			err = history(versions, &r)
		}
	case *Use:
		r.Session, err = a.use(ctx, body, session)
	default:
		err = fmt.Errorf("sql: %s is no statement about a catalog", st.Kind)
	}
	if err != nil {
		return Result{}, err
	}
	return r, nil
}

func (a *Analyzer) createTable(ctx context.Context, src *source, ct *CreateTable, session plan.Session) error {
	name, err := a.completeTable(ctx, ct.Name.Parts(), session)
	if err != nil {
		return err
	}
	def, err := define(src, ct, name)
	if ct.Format == "delta" || name.Catalog == deltaCatalog && len(name.Namespace) == 0 {
		def, err = defineDelta(src, ct, name)
	}
	if err != nil {
		return err
	}
	return a.Catalogs.CreateTable(ctx, def)
}

func (a *Analyzer) createNamespace(ctx context.Context, body *CreateNamespace, session plan.Session) error {
	catalog, ns, err := a.completeNamespace(ctx, body.Name.Parts(), session)
	if err != nil {
		return err
	}
	props := map[string]string{}
	for _, p := range body.Properties {
		props[p.Key] = p.Value
	}
	return a.Catalogs.CreateNamespace(ctx, catalog, ns, props, body.IfNotExists)
}

// completeNamespace makes a catalog and a namespace of a name: the first part
// is a catalog if there is one of that name and another part follows.
func (a *Analyzer) completeNamespace(ctx context.Context, parts []string, session plan.Session) (string, []string, error) {
	catalogs, err := a.Catalogs.Catalogs(ctx)
	if err != nil {
		return "", nil, err
	}
	if len(parts) > 1 && slices.Contains(catalogs, parts[0]) {
		return parts[0], namespaceOf(parts[1:]), nil
	}
	catalog := session.Catalog
	if catalog == "" && len(parts) > 1 {
		// Nothing but a catalog could stand first.
		return "", nil, a.knownCatalog(ctx, parts[0])
	}
	if catalog == "" && len(catalogs) == 1 {
		catalog = catalogs[0]
	}
	if catalog == "" {
		return "", nil, &commit.Error{
			Code: commit.CodeSQLNameIncomplete, Op: "resolve namespace", Object: strings.Join(parts, "."),
			Cause: errors.New("neither the name nor the session says in which catalog it is"),
			Hint:  "Write catalog.namespace, or give the session a catalog: USE catalog in firn sql, session over REST, the header firn-catalog over Flight SQL.",
		}
	}
	return catalog, namespaceOf(parts), nil
}

// namespaceOf splits a single quoted part with dots, as table names have it.
func namespaceOf(parts []string) []string {
	if len(parts) == 1 {
		return strings.Split(parts[0], ".")
	}
	return slices.Clone(parts)
}

func (a *Analyzer) show(ctx context.Context, s *Show, session plan.Session, r *Result) error {
	switch s.What {
	case "catalogs":
		return a.showCatalogs(ctx, r)
	case "sources":
		return a.showSources(ctx, r)
	case "namespaces":
		catalog, parent, err := a.place(ctx, s.In, session, true)
		if err != nil {
			return err
		}
		list, err := a.Catalogs.Namespaces(ctx, catalog, parent)
		if err != nil {
			return err
		}
		r.Columns = []string{"catalog", "namespace"}
		for _, ns := range list {
			r.Rows = append(r.Rows, []any{catalog, strings.Join(ns, ".")})
		}
		return nil
	}
	return a.showTables(ctx, s, session, r)
}

// showTables lists the tables of one namespace, or of all of a catalog.
func (a *Analyzer) showTables(ctx context.Context, s *Show, session plan.Session, r *Result) error {
	catalog, ns, err := a.place(ctx, s.In, session, false)
	if err != nil {
		return err
	}
	r.Columns = []string{"catalog", "namespace", "table"}
	todo := [][]string{ns}
	if len(ns) == 0 {
		if todo, err = a.Catalogs.Namespaces(ctx, catalog, nil); err != nil {
			return err
		}
	}
	for _, ns := range todo {
		tables, err := a.Catalogs.Tables(ctx, catalog, ns)
		if err != nil {
			return err
		}
		for _, t := range tables {
			r.Rows = append(r.Rows, []any{t.Catalog, strings.Join(t.Namespace, "."), t.Name})
		}
	}
	return nil
}

// place reads what stands behind IN: a catalog, a catalog and a namespace, or a
// namespace of the session's catalog. Without it the session's; catalogOnly
// leaves the session's namespace out.
func (a *Analyzer) place(ctx context.Context, in Name, session plan.Session, catalogOnly bool) (string, []string, error) {
	catalogs, err := a.Catalogs.Catalogs(ctx)
	if err != nil {
		return "", nil, err
	}
	parts := in.Parts()
	if len(parts) == 1 && slices.Contains(catalogs, parts[0]) {
		return parts[0], nil, nil
	}
	if len(parts) > 0 {
		return a.completeNamespace(ctx, parts, session)
	}
	catalog := session.Catalog
	if catalog == "" && len(catalogs) == 1 {
		catalog = catalogs[0]
	}
	if catalog == "" {
		return "", nil, &commit.Error{
			Code: commit.CodeSQLNameIncomplete, Op: "show", Cause: errors.New("no catalog was named and no USE statement fixed one"),
			Hint: "Write SHOW … IN catalog. The catalogs are " + strings.Join(catalogs, ", ") + ".",
		}
	}
	if catalogOnly {
		return catalog, nil, nil
	}
	return catalog, session.Namespace, nil
}

// use changes the session: to a catalog, a catalog and a namespace, or a
// namespace of the session's catalog. Both must exist.
func (a *Analyzer) use(ctx context.Context, u *Use, session plan.Session) (plan.Session, error) {
	parts := u.Name.Parts()
	catalogs, err := a.Catalogs.Catalogs(ctx)
	if err != nil {
		return session, err
	}
	if len(parts) == 1 && slices.Contains(catalogs, parts[0]) {
		return plan.Session{Catalog: parts[0]}, nil
	}
	if len(parts) == 1 && session.Catalog == "" && len(catalogs) != 1 {
		return session, a.knownCatalog(ctx, parts[0])
	}
	catalog, ns, err := a.completeNamespace(ctx, parts, session)
	if err != nil {
		return session, err
	}
	// A catalog answers a listing of a namespace that isn't there with its
	// own error.
	if _, err := a.Catalogs.Tables(ctx, catalog, ns); err != nil {
		return session, err
	}
	return plan.Session{Catalog: catalog, Namespace: ns}, nil
}

// described is a table as DESCRIBE and SHOW CREATE TABLE show it.
type described struct {
	pinned  plan.Pinned
	using   string
	columns []describedColumn
	// terms are what stands in PARTITIONED BY.
	terms []string
}

type describedColumn struct {
	name, typ string
	nullable  bool
	// partition has the terms that take the column; empty for none.
	partition, comment string
}

// described reads a table by the name in a statement.
func (a *Analyzer) described(ctx context.Context, n Name, session plan.Session) (described, error) {
	name, err := a.completeTable(ctx, n.Parts(), session)
	if err != nil {
		return described{}, err
	}
	p, err := a.Catalogs.Pin(ctx, name)
	if err != nil {
		return described{}, err
	}
	read := describeIceberg
	if p.Format == "delta" {
		read = describeDelta
	}
	d, err := read(p)
	if err != nil {
		err = &commit.Error{Code: commit.CodeSQLTargetUnsupported, Op: "describe", Object: name.String(), Cause: err}
	}
	return d, err
}

func describeIceberg(p plan.Pinned) (described, error) {
	d := described{pinned: p, using: "iceberg"}
	schema, err := format.ParseSchema(p.SchemaJSON)
	if err != nil {
		return d, err
	}
	spec, err := format.ParseSpec(p.SpecJSON, schema)
	if err != nil {
		return d, err
	}
	for _, f := range schema.Fields() {
		c := describedColumn{name: f.Name, typ: typeName(f.Type), nullable: !f.Required, comment: f.Doc}
		var terms []string
		for _, pf := range spec.Fields() {
			if slices.Contains(pf.SourceIDs, f.ID) {
				terms = append(terms, partitionTerm(pf, quoteIfNeeded(f.Name)))
			}
		}
		c.partition = strings.Join(terms, ", ")
		d.columns = append(d.columns, c)
	}
	for _, pf := range spec.Fields() {
		column := "?"
		if len(pf.SourceIDs) == 1 {
			if name, ok := schema.FindColumnName(pf.SourceIDs[0]); ok {
				column = quoteIfNeeded(name)
			}
		}
		d.terms = append(d.terms, partitionTerm(pf, column))
	}
	return d, nil
}

func (a *Analyzer) describe(ctx context.Context, body *Describe, session plan.Session, r *Result) error {
	d, err := a.described(ctx, body.Name, session)
	if err != nil {
		return err
	}
	orNull := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	r.Columns = []string{"column", "type", "nullable", "partition", "comment"}
	for _, c := range d.columns {
		r.Rows = append(r.Rows, []any{c.name, c.typ, c.nullable, orNull(c.partition), orNull(c.comment)})
	}
	return nil
}

// typeName is the type as CREATE TABLE takes it, or Iceberg's own name for one
// that Firn has no spelling for.
func typeName(t iceberg.Type) string {
	if f, ok := t.(iceberg.FixedType); ok {
		return fmt.Sprintf("FIXED(%d)", f.Len())
	}
	d, err := format.DuckDBType(t)
	if err != nil {
		return t.String()
	}
	return d
}

// partitionTerm writes a partition field as PARTITIONED BY takes it.
func partitionTerm(f iceberg.PartitionField, column string) string {
	switch t := f.Transform.(type) {
	case iceberg.IdentityTransform:
		return column
	case iceberg.BucketTransform:
		return fmt.Sprintf("bucket(%d, %s)", t.NumBuckets, column)
	case iceberg.TruncateTransform:
		return fmt.Sprintf("truncate(%d, %s)", t.Width, column)
	}
	return f.Transform.String() + "(" + column + ")"
}

// showCreate writes the statement that would make the table.
func (a *Analyzer) showCreate(ctx context.Context, s *ShowCreateTable, session plan.Session, r *Result) error {
	d, err := a.described(ctx, s.Name, session)
	if err != nil {
		return err
	}
	p := d.pinned
	parts := append(append([]string{p.Name.Catalog}, p.Name.Namespace...), p.Name.Name)
	for i := range parts {
		parts[i] = quoteIfNeeded(parts[i])
	}
	var b strings.Builder
	b.WriteString("CREATE TABLE " + strings.Join(parts, ".") + " (")
	for i, c := range d.columns {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString("\n  " + quoteIfNeeded(c.name) + " " + c.typ)
		if !c.nullable {
			b.WriteString(" NOT NULL")
		}
		if c.comment != "" {
			b.WriteString(" COMMENT " + quoteString(c.comment))
		}
	}
	b.WriteString("\n)\nUSING " + d.using)
	if d.using == "delta" && len(p.Name.Namespace) > 0 {
		b.WriteString("\nLOCATION " + quoteString(p.Location))
	}
	if d.terms != nil {
		b.WriteString("\nPARTITIONED BY (" + strings.Join(d.terms, ", ") + ")")
	}
	var props []string
	for _, k := range slices.Sorted(maps.Keys(p.Properties)) {
		if k != "comment" && !strings.HasPrefix(k, "firn.") {
			props = append(props, quoteString(k)+" = "+quoteString(p.Properties[k]))
		}
	}
	if c := cmp.Or(p.Comment, p.Properties["comment"]); c != "" {
		b.WriteString("\nCOMMENT " + quoteString(c))
	}
	if props != nil {
		b.WriteString("\nTBLPROPERTIES (\n  " + strings.Join(props, ",\n  ") + "\n)")
	}
	r.Columns, r.Rows = []string{"statement"}, [][]any{{b.String()}}
	return nil
}
