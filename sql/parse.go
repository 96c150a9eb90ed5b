package sql

import (
	"fmt"
	"strings"

	"github.com/firn-project/firn/commit"
)

// supported lists the statements there are, for messages.
const supported = "Firn runs CREATE and DROP of TABLE, NAMESPACE, CATALOG and SOURCE, CHECK CATALOG, SHOW, DESCRIBE, USE, INSERT INTO, SELECT and EXPLAIN."

// Parse splits a script at its semicolons and parses each statement. Empty
// statements are left out, so the result may be empty. An error is a
// *commit.Error with line and column, from 1, in characters.
//
// Only heads are read here. The SELECT inside a statement is taken over as
// text: DuckDB's parser reads it when the statement is bound.
func Parse(text string) ([]Statement, error) {
	src := &source{text: text}
	l, err := lex(src)
	if err != nil {
		return nil, err
	}
	var statements []Statement
	tokens := l.tokens
	for len(tokens) > 0 {
		n := 0
		for n < len(tokens) && !tokens[n].is(";") {
			n++
		}
		if n > 0 {
			st, err := parseStatement(src, tokens[:n], l.spaces)
			if err != nil {
				return nil, err
			}
			statements = append(statements, st)
		}
		tokens = tokens[min(n+1, len(tokens)):]
	}
	return statements, nil
}

// parser reads the tokens of one statement.
type parser struct {
	src    *source
	tokens []token
	spaces []token
	i      int
}

func parseStatement(src *source, tokens, spaces []token) (Statement, error) {
	p := &parser{src: src, tokens: tokens, spaces: spaces}
	body, err := p.statement()
	if err != nil {
		return Statement{}, err
	}
	first, last := tokens[0], tokens[len(tokens)-1]
	return Statement{
		Text:   src.text[first.start:last.end],
		Offset: first.start,
		Kind:   body.kind(),
		Body:   body,
		src:    src,
	}, nil
}

// peek gives the token k ahead; past the end, an empty one at the end.
func (p *parser) peek(k int) token {
	if p.i+k < len(p.tokens) {
		return p.tokens[p.i+k]
	}
	end := p.tokens[len(p.tokens)-1].end
	return token{start: end, end: end}
}

func (p *parser) done() bool { return p.i >= len(p.tokens) }

// accept reads the keywords if they come next, all of them or none.
func (p *parser) accept(keywords ...string) bool {
	for k, w := range keywords {
		if !p.peek(k).word(w) {
			return false
		}
	}
	p.i += len(keywords)
	return true
}

// acceptOther reads the one-character token if it comes next.
func (p *parser) acceptOther(c string) bool {
	if !p.peek(0).is(c) {
		return false
	}
	p.i++
	return true
}

// unexpected is the error that something else was wanted here.
func (p *parser) unexpected(want string) error {
	t := p.peek(0)
	if t.kind == 0 {
		return p.src.syntax(t.start, "the statement ends where "+want+" was expected", "")
	}
	found := shorten(p.src.text[t.start:t.end])
	if t.kind != tokenOther && secretive.MatchString(p.src.text) {
		found = "something else"
	}
	return p.src.syntax(t.start, fmt.Sprintf("expected %s, found %s", want, found), "")
}

func shorten(s string) string {
	if r := []rune(s); len(r) > 40 {
		return string(r[:40]) + "…"
	}
	return s
}

// refuse is the error that the statement at hand isn't supported.
func (p *parser) refuse(offset int, cause, hint string) error {
	return p.src.errorAt(commit.CodeSQLUnsupportedStatement, "parse statement", offset, cause, hint)
}

// end refuses anything that is left.
func (p *parser) end() error {
	if !p.done() {
		return p.unexpected("the end of the statement")
	}
	return nil
}

// ident reads one identifier. Reserved words need quotes, here as in DuckDB.
func (p *parser) ident(what string) (Ident, error) {
	t := p.peek(0)
	switch {
	case t.kind == tokenWord && reserved[strings.ToLower(t.text)]:
		return Ident{}, p.src.syntax(t.start, fmt.Sprintf("expected %s, found the keyword %s", what, t.text),
			"To use the word as a name write "+QuoteIdent(t.text)+".")
	case t.kind == tokenWord, t.kind == tokenQuoted:
		p.i++
		return Ident{Name: t.text, Offset: t.start}, nil
	}
	return Ident{}, p.unexpected(what)
}

// name reads a dotted name.
func (p *parser) name(what string) (Name, error) {
	var n Name
	for {
		id, err := p.ident(what)
		if err != nil {
			return nil, err
		}
		n = append(n, id)
		if !p.acceptOther(".") {
			return n, nil
		}
	}
}

// str reads one string.
func (p *parser) str(what string) (string, error) {
	t := p.peek(0)
	if t.kind != tokenString {
		return "", p.unexpected(what)
	}
	if t.coded {
		return "", p.src.syntax(t.start, `\x, \u and octal escapes aren't supported in this string`, "Write the characters themselves.")
	}
	p.i++
	return t.text, nil
}

// statement reads the one statement that the tokens are.
func (p *parser) statement() (Body, error) {
	t := p.peek(0)
	switch {
	case p.accept("CREATE"):
		return p.create()
	case p.accept("DROP"):
		return p.drop()
	case p.accept("SHOW"):
		return p.show()
	case p.accept("CHECK"):
		return p.checkCatalog()
	case t.word("DESCRIBE", "DESC"):
		return p.describe()
	case p.accept("USE"):
		n, err := p.name("a catalog or namespace")
		if err != nil {
			return nil, err
		}
		return &Use{Name: n}, p.end()
	case p.accept("EXPLAIN"):
		return p.explain()
	case p.accept("INSERT"):
		return p.insert()
	case p.startsQuery(0):
		q, err := p.query()
		return &Select{Query: q}, err
	}
	return nil, p.unsupported(t)
}

// startsQuery says whether the token k ahead begins something that DuckDB
// gives rows for.
func (p *parser) startsQuery(k int) bool {
	t := p.peek(k)
	return t.is("(") || t.word("SELECT", "WITH", "VALUES", "FROM", "TABLE", "SUMMARIZE", "PIVOT", "UNPIVOT", "PIVOT_WIDER", "PIVOT_LONGER")
}

// query takes the rest of the statement over as a query. Identifiers in
// backticks are written with double quotes, and blanks that aren't ASCII as
// spaces, both of the same length where that is possible.
func (p *parser) query() (QueryText, error) {
	first, last := p.peek(0), p.tokens[len(p.tokens)-1]
	if err := p.checkQuery(); err != nil {
		return QueryText{}, err
	}
	q := QueryText{Offset: first.start}
	var b strings.Builder
	pos := first.start
	replace := func(t token, by string) {
		b.WriteString(p.src.text[pos:t.start])
		b.WriteString(by)
		if n := t.end - t.start - len(by); n > 0 {
			b.WriteString(strings.Repeat(" ", n))
		} else if n < 0 {
			q.moved = append(q.moved, shift{after: b.Len(), by: -n})
		}
		pos = t.end
	}
	spaces := p.spaces
	for _, t := range p.tokens[p.i:] {
		for len(spaces) > 0 && spaces[0].end <= t.start {
			if spaces[0].start >= pos {
				replace(spaces[0], "")
			}
			spaces = spaces[1:]
		}
		if t.backtick {
			replace(t, QuoteIdent(t.text))
		}
	}
	b.WriteString(p.src.text[pos:last.end])
	q.Text = b.String()
	p.i = len(p.tokens)
	return q, nil
}

// checkQuery refuses what is no query for DuckDB either, where a better message
// is possible than its own.
func (p *parser) checkQuery() error {
	t := p.peek(0)
	if t.word("PIVOT", "PIVOT_WIDER") {
		return p.refuse(t.start, "the statement form of PIVOT isn't supported", "Write SELECT * FROM t PIVOT (…) instead.")
	}
	if !t.word("WITH") {
		return nil
	}
	depth := 0
	for k, t := range p.tokens[p.i:] {
		switch {
		case t.is("("):
			depth++
		case t.is(")"):
			depth--
		case depth != 0:
		case t.word("INSERT") && p.peek(k+1).word("INTO"):
			return p.refuse(t.start, "WITH before INSERT isn't supported", "Write INSERT INTO t WITH … SELECT … instead.")
		case t.word("UPDATE", "DELETE", "MERGE") && p.peek(k-1).is(")"):
			return p.unsupported(t)
		}
	}
	return nil
}

// shift says that offsets from after on are by greater than in the script.
type shift struct{ after, by int }

// scriptOffset turns a byte offset into the query's text to one into the
// script.
func (q QueryText) scriptOffset(offset int) int {
	moved := 0
	for _, m := range q.moved {
		if m.after > offset {
			break
		}
		moved += m.by
	}
	return q.Offset + offset - moved
}

// explain reads the statement behind EXPLAIN.
func (p *parser) explain() (Body, error) {
	analyze := p.peek(0).word("ANALYZE", "ANALYSE")
	if analyze {
		p.i++
	}
	if p.done() {
		return nil, p.unexpected("INSERT or SELECT")
	}
	start := p.peek(0).start
	st, err := parseStatement(p.src, p.tokens[p.i:], p.spaces)
	if err != nil {
		return nil, err
	}
	switch st.Body.(type) {
	case *Insert, *Select:
		return &Explain{Statement: st, Analyze: analyze}, nil
	}
	return nil, p.refuse(start, "EXPLAIN takes INSERT or SELECT", "Other statements have no plan.")
}

// insert reads what follows INSERT.
func (p *parser) insert() (Body, error) {
	switch t := p.peek(0); {
	case t.word("OVERWRITE"):
		return nil, p.refuse(t.start, "INSERT OVERWRITE isn't supported yet", "INSERT INTO appends.")
	case t.word("OR"):
		return nil, p.refuse(t.start, "INSERT OR REPLACE and OR IGNORE aren't supported: tables have no keys", "INSERT INTO appends.")
	case !p.accept("INTO"):
		return nil, p.unexpected("INTO")
	}
	if p.peek(0).word("TABLE") {
		p.i++
	}
	target, err := p.name("the name of a table")
	if err != nil {
		return nil, err
	}
	in := &Insert{Target: target}
	if t := p.peek(0); t.word("PARTITION") {
		return nil, p.refuse(t.start, "PARTITION (…) isn't supported", "Rows find their partition by the values in them.")
	}
	if t := p.peek(0); t.word("VALUES") && p.peek(1).kind == 0 || t.word("DEFAULT") {
		return nil, p.refuse(t.start, "INSERT without rows isn't supported", "Write VALUES (…) or a SELECT.")
	}
	for range 2 { // BY NAME and the list of columns come in either order
		if t := p.peek(0); t.word("BY") && !in.ByName {
			p.i++
			if p.accept("POSITION") {
				continue
			}
			if !p.accept("NAME") {
				return nil, p.unexpected("NAME or POSITION")
			}
			in.ByName = true
		}
		if in.Columns == nil && p.startsColumns() {
			if in.Columns, err = p.columns(); err != nil {
				return nil, err
			}
		}
	}
	if in.ByName && in.Columns != nil {
		return nil, p.src.syntax(in.Columns[0].Offset, "BY NAME and a list of columns exclude each other",
			"BY NAME takes the names from the query.")
	}
	if !p.startsQuery(0) && !p.peek(0).word("DESCRIBE", "SHOW") {
		return nil, p.unexpected("SELECT, VALUES, WITH or FROM")
	}
	in.Query, err = p.query()
	return in, err
}

// startsColumns tells (a, b) from a query in parentheses.
func (p *parser) startsColumns() bool {
	if !p.peek(0).is("(") || p.peek(1).is("(") {
		return false
	}
	t := p.peek(1)
	if t.word("VALUES") {
		return !p.peek(2).is("(")
	}
	return !p.startsQuery(1)
}

func (p *parser) columns() ([]Ident, error) {
	p.i++ // the parenthesis
	var columns []Ident
	for {
		id, err := p.ident("the name of a column")
		if err != nil {
			return nil, err
		}
		columns = append(columns, id)
		if p.acceptOther(")") {
			return columns, nil
		}
		if !p.acceptOther(",") {
			return nil, p.unexpected(", or )")
		}
	}
}
