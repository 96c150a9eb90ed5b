package sql

import (
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
	case *Show:
		err = a.show(ctx, body, session, &r)
	case *ShowCreateTable:
		err = a.showCreate(ctx, body, session, &r)
	case *Describe:
		err = a.describe(ctx, body, session, &r)
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
			Cause: errors.New("neither the name nor a USE statement says in which catalog it is"),
			Hint:  "Write catalog.namespace, or run USE catalog first.",
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

// pinned reads a table by the name in a statement.
func (a *Analyzer) pinned(ctx context.Context, n Name, session plan.Session) (plan.Pinned, *iceberg.Schema, iceberg.PartitionSpec, error) {
	var spec iceberg.PartitionSpec
	name, err := a.completeTable(ctx, n.Parts(), session)
	if err != nil {
		return plan.Pinned{}, nil, spec, err
	}
	p, err := a.Catalogs.Pin(ctx, name)
	if err != nil {
		return p, nil, spec, err
	}
	schema, err := format.ParseSchema(p.SchemaJSON)
	if err == nil {
		spec, err = format.ParseSpec(p.SpecJSON, schema)
	}
	if err != nil {
		err = &commit.Error{Code: commit.CodeSQLTargetUnsupported, Op: "describe", Object: name.String(), Cause: err}
	}
	return p, schema, spec, err
}

func (a *Analyzer) describe(ctx context.Context, d *Describe, session plan.Session, r *Result) error {
	_, schema, spec, err := a.pinned(ctx, d.Name, session)
	if err != nil {
		return err
	}
	r.Columns = []string{"column", "type", "nullable", "partition", "comment"}
	for _, f := range schema.Fields() {
		var terms []string
		for _, pf := range spec.Fields() {
			if slices.Contains(pf.SourceIDs, f.ID) {
				terms = append(terms, partitionTerm(pf, quoteIfNeeded(f.Name)))
			}
		}
		row := []any{f.Name, typeName(f.Type), !f.Required, nil, nil}
		if terms != nil {
			row[3] = strings.Join(terms, ", ")
		}
		if f.Doc != "" {
			row[4] = f.Doc
		}
		r.Rows = append(r.Rows, row)
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
	p, schema, spec, err := a.pinned(ctx, s.Name, session)
	if err != nil {
		return err
	}
	parts := append(append([]string{p.Name.Catalog}, p.Name.Namespace...), p.Name.Name)
	for i := range parts {
		parts[i] = quoteIfNeeded(parts[i])
	}
	var b strings.Builder
	b.WriteString("CREATE TABLE " + strings.Join(parts, ".") + " (")
	for i, f := range schema.Fields() {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString("\n  " + quoteIfNeeded(f.Name) + " " + typeName(f.Type))
		if f.Required {
			b.WriteString(" NOT NULL")
		}
		if f.Doc != "" {
			b.WriteString(" COMMENT " + quoteString(f.Doc))
		}
	}
	b.WriteString("\n)\nUSING iceberg")
	var terms []string
	for _, pf := range spec.Fields() {
		column := "?"
		if len(pf.SourceIDs) == 1 {
			if name, ok := schema.FindColumnName(pf.SourceIDs[0]); ok {
				column = quoteIfNeeded(name)
			}
		}
		terms = append(terms, partitionTerm(pf, column))
	}
	if terms != nil {
		b.WriteString("\nPARTITIONED BY (" + strings.Join(terms, ", ") + ")")
	}
	var props []string
	for _, k := range slices.Sorted(maps.Keys(p.Properties)) {
		if k != "comment" && !strings.HasPrefix(k, "firn.") {
			props = append(props, quoteString(k)+" = "+quoteString(p.Properties[k]))
		}
	}
	if c := p.Properties["comment"]; c != "" {
		b.WriteString("\nCOMMENT " + quoteString(c))
	}
	if props != nil {
		b.WriteString("\nTBLPROPERTIES (\n  " + strings.Join(props, ",\n  ") + "\n)")
	}
	r.Columns, r.Rows = []string{"statement"}, [][]any{{b.String()}}
	return nil
}
