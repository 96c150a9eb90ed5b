package sql

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/firn-project/firn/commit"
)

// hints for statements that people try, by their first word.
var unsupportedHints = map[string]string{
	"UPDATE": "Rows can't be changed yet.", "DELETE": "Rows can't be deleted yet.", "MERGE": "Rows can't be merged yet.",
	"TRUNCATE": "DROP TABLE and CREATE TABLE make an empty table.",
	"ALTER":    "Tables can't be altered yet; another engine may do it.",
	"COPY":     "INSERT INTO t SELECT … FROM 'file.parquet' loads a file.",
	"IMPORT":   "INSERT INTO t SELECT … FROM 'file.parquet' loads a file.",
	"LOAD":     "Extensions can't be loaded.", "INSTALL": "Extensions can't be installed.",
	"ATTACH": "CREATE CATALOG adds a catalog.", "DETACH": "DROP CATALOG removes a catalog.",
	"SET": "Settings are the scheduler's; USE sets the catalog and namespace.", "RESET": "Settings are the scheduler's.",
	"PRAGMA": "DESCRIBE and SHOW tell about tables.", "CALL": "Procedures can't be called.",
	"BEGIN": "Each statement is its own transaction.", "START": "Each statement is its own transaction.",
	"COMMIT": "Each statement is its own transaction.", "ROLLBACK": "Each statement is its own transaction.",
	"SELEC": "Did you mean SELECT?",
}

// unsupported is the error for a statement that there isn't.
func (p *parser) unsupported(t token) error {
	if t.kind != tokenWord {
		return p.src.syntax(t.start, "a statement can't begin with "+shorten(p.src.text[t.start:t.end]), supported)
	}
	word := strings.ToUpper(t.text)
	hint := supported
	if h := unsupportedHints[word]; h != "" {
		hint = h + " " + hint
	}
	return p.refuse(t.start, shorten(word)+" isn't a statement that Firn runs", hint)
}

// create reads what follows CREATE.
func (p *parser) create() (Body, error) {
	t := p.peek(0)
	switch {
	case p.accept("TABLE"):
		return p.createTable()
	case p.accept("NAMESPACE"), p.accept("SCHEMA"), p.accept("DATABASE"):
		return p.createNamespace()
	case p.accept("CATALOG"):
		return p.createCatalog()
	case p.accept("SOURCE"):
		return p.createSource()
	case t.word("OR"):
		return nil, p.refuse(t.start, "CREATE OR REPLACE isn't supported", "DROP TABLE first, or CREATE TABLE IF NOT EXISTS.")
	case t.word("TEMP", "TEMPORARY", "EXTERNAL"):
		return nil, p.refuse(t.start, "CREATE "+strings.ToUpper(t.text)+" isn't supported", "CREATE TABLE makes a table in a catalog.")
	case t.kind == tokenWord:
		return nil, p.refuse(t.start, "CREATE "+shorten(strings.ToUpper(t.text))+" isn't supported", supported)
	}
	return nil, p.unexpected("TABLE, NAMESPACE, CATALOG or SOURCE")
}

func (p *parser) ifNotExists() (bool, error) {
	if !p.accept("IF") {
		return false, nil
	}
	if !p.accept("NOT", "EXISTS") {
		return false, p.unexpected("NOT EXISTS")
	}
	return true, nil
}

func (p *parser) createNamespace() (Body, error) {
	var ns CreateNamespace
	var err error
	if ns.IfNotExists, err = p.ifNotExists(); err != nil {
		return nil, err
	}
	if ns.Name, err = p.name("the name of a namespace"); err != nil {
		return nil, err
	}
	for !p.done() {
		switch {
		case p.accept("COMMENT"):
			s, err := p.str("the comment as a string")
			if err != nil {
				return nil, err
			}
			ns.Properties = append(ns.Properties, Property{Key: "comment", Value: s})
		case p.accept("WITH", "PROPERTIES"), p.accept("WITH", "DBPROPERTIES"), p.accept("PROPERTIES"):
			props, err := p.properties(p.stringKey)
			if err != nil {
				return nil, err
			}
			ns.Properties = append(ns.Properties, props...)
		default:
			return nil, p.unexpected("COMMENT, WITH PROPERTIES or the end of the statement")
		}
	}
	return &ns, nil
}

func (p *parser) drop() (Body, error) {
	t := p.peek(0)
	if p.accept("CATALOG") {
		return p.dropCatalog()
	}
	if p.accept("SOURCE") {
		return p.dropSource()
	}
	table := p.accept("TABLE")
	if !table && !p.accept("NAMESPACE") && !p.accept("SCHEMA") && !p.accept("DATABASE") {
		if t.kind == tokenWord {
			return nil, p.refuse(t.start, "DROP "+shorten(strings.ToUpper(t.text))+" isn't supported", supported)
		}
		return nil, p.unexpected("TABLE, NAMESPACE, CATALOG or SOURCE")
	}
	ifExists := p.accept("IF")
	if ifExists && !p.accept("EXISTS") {
		return nil, p.unexpected("EXISTS")
	}
	n, err := p.name("a name")
	if err != nil {
		return nil, err
	}
	if t := p.peek(0); t.word("CASCADE") {
		return nil, p.refuse(t.start, "CASCADE isn't supported", "Drop the tables one by one.")
	}
	if t := p.peek(0); t.word("PURGE") {
		return nil, p.refuse(t.start, "PURGE isn't supported", "DROP TABLE removes the table from its catalog; its files stay.")
	}
	p.accept("RESTRICT")
	if table {
		return &DropTable{Name: n, IfExists: ifExists}, p.end()
	}
	return &DropNamespace{Name: n, IfExists: ifExists}, p.end()
}

func (p *parser) show() (Body, error) {
	t := p.peek(0)
	var s Show
	switch {
	case p.accept("CREATE"):
		if !p.accept("TABLE") {
			return nil, p.unexpected("TABLE")
		}
		n, err := p.name("the name of a table")
		if err != nil {
			return nil, err
		}
		return &ShowCreateTable{Name: n}, p.end()
	case p.accept("CATALOGS"):
		s.What = "catalogs"
		return &s, p.end()
	case p.accept("SOURCES"):
		s.What = "sources"
		return &s, p.end()
	case p.accept("NAMESPACES"), p.accept("SCHEMAS"), p.accept("DATABASES"):
		s.What = "namespaces"
	case p.accept("TABLES"):
		s.What = "tables"
	case t.kind == tokenWord:
		return nil, p.refuse(t.start, "SHOW "+shorten(strings.ToUpper(t.text))+" isn't supported",
			"There are SHOW CATALOGS, SHOW SOURCES, SHOW NAMESPACES, SHOW TABLES and SHOW CREATE TABLE.")
	default:
		return nil, p.unexpected("CATALOGS, SOURCES, NAMESPACES, TABLES or CREATE TABLE")
	}
	if p.accept("IN") || p.accept("FROM") {
		n, err := p.name("a catalog or namespace")
		if err != nil {
			return nil, err
		}
		s.In = n
	}
	return &s, p.end()
}

// describe tells the description of a catalog table from that of a query or a
// file, which is DuckDB's.
func (p *parser) describe() (Body, error) {
	next := p.peek(1)
	if next.word("HISTORY") && p.peek(2).kind != 0 && !p.peek(2).is(".") {
		p.i += 2
		n, err := p.name("the name of a table")
		if err != nil {
			return nil, err
		}
		return &DescribeHistory{Name: n}, p.end()
	}
	table := next.word("TABLE") && p.peek(2).kind != 0
	file := next.kind == tokenString || next.kind == tokenQuoted && readerOf(next.text) != "" && !p.peek(2).is(".")
	if file || !table && p.startsQuery(1) {
		q, err := p.query()
		return &Select{Query: q}, err
	}
	p.i++
	if table {
		p.i++
	}
	if t := p.peek(0); t.word("EXTENDED", "FORMATTED") && p.peek(1).kind != 0 {
		return nil, p.refuse(t.start, "DESCRIBE "+strings.ToUpper(t.text)+" isn't supported", "`firn table describe` shows more.")
	}
	n, err := p.name("the name of a table")
	if err != nil {
		return nil, err
	}
	return &Describe{Name: n}, p.end()
}

// createTable reads what follows CREATE TABLE.
func (p *parser) createTable() (Body, error) {
	var ct CreateTable
	var err error
	if ct.IfNotExists, err = p.ifNotExists(); err != nil {
		return nil, err
	}
	if ct.Name, err = p.name("the name of a table"); err != nil {
		return nil, err
	}
	if t := p.peek(0); t.word("AS") || t.word("LIKE") {
		return nil, p.refuse(t.start, "CREATE TABLE … "+strings.ToUpper(t.text)+" isn't supported",
			"CREATE TABLE with columns, then INSERT INTO it.")
	}
	// A Delta table that is there already is given a name without columns.
	if t := p.peek(0); !t.word("USING") {
		if ct.Columns, err = p.columnDefs(); err != nil {
			return nil, err
		}
	}
	seen := map[string]bool{}
	for !p.done() {
		t := p.peek(0)
		clause := strings.ToUpper(t.text)
		if t.kind == tokenWord && seen[clause] {
			return nil, p.src.syntax(t.start, clause+" stands twice", "")
		}
		seen[clause] = true
		if err := p.tableClause(&ct); err != nil {
			return nil, err
		}
	}
	return &ct, nil
}

func (p *parser) columnDefs() (columns []ColumnDef, err error) {
	if !p.acceptOther("(") {
		return nil, p.unexpected("( and the columns")
	}
	for {
		c, err := p.columnDef()
		if err != nil {
			return nil, err
		}
		columns = append(columns, c)
		if p.acceptOther(")") {
			return columns, nil
		}
		if !p.acceptOther(",") {
			return nil, p.unexpected(", or )")
		}
	}
}

// tableClause reads one clause behind the columns.
func (p *parser) tableClause(ct *CreateTable) (err error) {
	t := p.peek(0)
	switch {
	case p.accept("USING"):
		f, err := p.ident("the name of a table format")
		if err != nil {
			return err
		}
		if ct.Format = strings.ToLower(f.Name); ct.Format != "iceberg" && ct.Format != "delta" {
			return p.refuse(f.Offset, "there's no table format "+f.Name, "Write USING iceberg, USING delta, or leave it out.")
		}
	case p.accept("PARTITIONED"):
		if !p.accept("BY") {
			return p.unexpected("BY")
		}
		ct.Partitions, err = p.partitions()
	case p.accept("COMMENT"):
		ct.Comment, err = p.str("the comment as a string")
	case p.accept("TBLPROPERTIES"):
		ct.Properties, err = p.properties(p.stringKey)
	case p.accept("LOCATION"):
		ct.Location.Offset = t.start
		ct.Location.Name, err = p.str("the location as a string")
	case t.word("AS"):
		return p.refuse(t.start, "CREATE TABLE … AS isn't supported", "CREATE TABLE, then INSERT INTO it.")
	case t.word("WITH", "OPTIONS"):
		return p.refuse(t.start, strings.ToUpper(t.text)+" isn't supported here", "Properties go in TBLPROPERTIES ('key' = 'value').")
	case t.word("CLUSTERED", "SORTED", "CLUSTER"):
		return p.refuse(t.start, strings.ToUpper(t.text)+" isn't supported here", "PARTITIONED BY (bucket(n, column)) makes buckets.")
	default:
		return p.unexpected("USING, LOCATION, PARTITIONED BY, COMMENT, TBLPROPERTIES or the end of the statement")
	}
	return err
}

// columnEnds are the words that end a column's type.
var columnEnds = []string{"NOT", "NULL", "COMMENT", "DEFAULT", "PRIMARY", "UNIQUE", "CHECK", "REFERENCES", "GENERATED", "COLLATE", "CONSTRAINT", "AS"}

func (p *parser) columnDef() (ColumnDef, error) {
	if t := p.peek(0); t.word("PRIMARY", "UNIQUE", "CHECK", "FOREIGN", "CONSTRAINT") {
		return ColumnDef{}, p.refuse(t.start, strings.ToUpper(t.text)+" constraints aren't supported", "Only NOT NULL is.")
	}
	var c ColumnDef
	var err error
	if c.Name, err = p.ident("the name of a column"); err != nil {
		return c, err
	}
	if c.Type, c.Offset, err = p.typeText(); err != nil {
		return c, err
	}
	for {
		t := p.peek(0)
		switch {
		case p.accept("NOT"):
			if !p.accept("NULL") {
				return c, p.unexpected("NULL")
			}
			c.NotNull = true
		case p.accept("NULL"):
		case p.accept("COMMENT"):
			if c.Comment, err = p.str("the comment as a string"); err != nil {
				return c, err
			}
		case t.word(columnEnds...):
			return c, p.refuse(t.start, strings.ToUpper(t.text)+" isn't supported for a column", "A column takes NOT NULL and COMMENT.")
		default:
			return c, nil
		}
	}
}

// typeText takes a type over as written, up to a comma, a parenthesis or a
// keyword that isn't the type's.
func (p *parser) typeText() (text string, offset int, err error) {
	start, depth := p.i, 0
	for !p.done() {
		t := p.peek(0)
		if depth == 0 && (t.is(",") || t.is(")") || t.word(columnEnds...)) {
			break
		}
		switch {
		case t.is("(") || t.is("[") || t.is("<"):
			depth++
		case t.is(")") || t.is("]") || t.is(">"):
			depth--
		}
		p.i++
	}
	if p.i == start {
		return "", 0, p.unexpected("the type of the column")
	}
	first, last := p.tokens[start], p.tokens[p.i-1]
	if depth != 0 {
		return "", 0, p.src.syntax(first.start, "the brackets of the column's type don't match", "")
	}
	return p.src.text[first.start:last.end], first.start, nil
}

func (p *parser) stringKey() (string, error) { return p.str("a property's key as a string") }

// properties reads ('key' = 'value', …), with what readKey takes for a key.
func (p *parser) properties(readKey func() (string, error)) ([]Property, error) {
	if !p.acceptOther("(") {
		return nil, p.unexpected("(")
	}
	var props []Property
	seen := map[string]bool{}
	for {
		at := p.peek(0)
		key, err := readKey()
		if err != nil {
			return nil, err
		}
		if seen[key] {
			return nil, p.src.syntax(at.start, "the property "+key+" stands twice", "")
		}
		seen[key] = true
		if !p.acceptOther("=") {
			return nil, p.unexpected("=")
		}
		value, err := p.str("the property's value as a string")
		if err != nil {
			return nil, err
		}
		props = append(props, Property{Key: key, Value: value})
		if p.acceptOther(")") {
			return props, nil
		}
		if !p.acceptOther(",") {
			return nil, p.unexpected(", or )")
		}
	}
}

// transforms are the names of partition transforms, in their plural and
// singular forms.
var transforms = map[string]string{
	"identity": "identity", "bucket": "bucket", "truncate": "truncate", "void": "void",
	"year": "year", "years": "year", "month": "month", "months": "month",
	"day": "day", "days": "day", "date": "day", "hour": "hour", "hours": "hour", "date_hour": "hour",
}

func (p *parser) partitions() ([]PartitionTerm, error) {
	if !p.acceptOther("(") {
		return nil, p.unexpected("(")
	}
	var terms []PartitionTerm
	for {
		term, err := p.partitionTerm()
		if err != nil {
			return nil, err
		}
		terms = append(terms, term)
		if p.acceptOther(")") {
			return terms, nil
		}
		if !p.acceptOther(",") {
			return nil, p.unexpected(", or )")
		}
	}
}

func (p *parser) partitionTerm() (PartitionTerm, error) {
	id, err := p.ident("a column or a transform of one")
	if err != nil {
		return PartitionTerm{}, err
	}
	term := PartitionTerm{Transform: "identity", Column: id, Offset: id.Offset}
	if p.peek(0).is(".") {
		return term, p.refuse(p.peek(0).start, "partition fields from inside a struct aren't supported", "Partition by a column.")
	}
	if !p.acceptOther("(") {
		return term, nil
	}
	if term.Transform = transforms[strings.ToLower(id.Name)]; term.Transform == "" {
		return term, p.src.errorAt(commit.CodeSQLDefinition, "parse statement", id.Offset, "there's no partition transform "+id.Name,
			"There are identity, bucket(n, c), truncate(n, c), year(c), month(c), day(c) and hour(c).")
	}
	wantsParam := term.Transform == "bucket" || term.Transform == "truncate"
	args := 1
	if wantsParam {
		args = 2
	}
	haveColumn, haveParam := false, false
	for k := range args {
		if k > 0 && !p.acceptOther(",") {
			return term, p.unexpected(fmt.Sprintf(", and the second argument of %s(n, column)", term.Transform))
		}
		if t := p.peek(0); wantsParam && !haveParam && t.kind == tokenNumber {
			n, err := strconv.Atoi(t.text)
			if err != nil || n <= 0 || n > math.MaxInt32 {
				return term, p.src.syntax(t.start, "the n of "+term.Transform+" must be a whole number from 1 to 2147483647", "")
			}
			p.i++
			term.Param, haveParam = n, true
			continue
		}
		if haveColumn {
			return term, p.unexpected("a whole number")
		}
		if term.Column, err = p.ident("a column"); err != nil {
			return term, err
		}
		haveColumn = true
	}
	if !p.acceptOther(")") {
		return term, p.unexpected(")")
	}
	return term, nil
}
