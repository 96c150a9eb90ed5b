package sql

import (
	"regexp"
	"strings"
)

// CreateCatalog is CREATE CATALOG. Its properties may hold secrets.
type CreateCatalog struct {
	Name        Ident
	IfNotExists bool
	Properties  []Property
}

// DropCatalog is DROP CATALOG.
type DropCatalog struct {
	Name     Ident
	IfExists bool
}

// CheckCatalog is CHECK CATALOG.
type CheckCatalog struct{ Name Ident }

func (*CreateCatalog) kind() string { return "CREATE CATALOG" }
func (*DropCatalog) kind() string   { return "DROP CATALOG" }
func (*CheckCatalog) kind() string  { return "CHECK CATALOG" }

// secretive finds statements whose strings may be secrets: errors about such a
// text repeat nothing of it. Words in between are let through rather than missed, but
// for sources only two and IF NOT EXISTS, beside comments: source is a name that tables
// and columns have.
var secretive = regexp.MustCompile(`(?is)\bcreate\b.*\bcatalog\b|\bcreate` + gap + `(\w+` + gap + `){0,2}(if` + gap + `not` + gap + `exists` + gap + `)?source\b`)

// gap is what may stand between two words; a comment may lack its end.
const gap = `(\W|--[^\n]*|/\*.*)+`

// createCatalog reads what follows CREATE CATALOG. A property's key may stand
// without quotes.
func (p *parser) createCatalog() (Body, error) {
	var c CreateCatalog
	var err error
	if c.IfNotExists, err = p.ifNotExists(); err != nil {
		return nil, err
	}
	if c.Name, err = p.ident("the name of a catalog"); err != nil {
		return nil, err
	}
	if p.accept("USING") && !p.accept("ICEBERG") {
		return nil, p.unexpected("ICEBERG")
	}
	if !p.accept("WITH") {
		return nil, p.unexpected("WITH (type = 'rest', uri = '…', …)")
	}
	if c.Properties, err = p.properties(p.looseKey); err != nil {
		return nil, err
	}
	return &c, p.end()
}

// looseKey is a property's key as a string or a dotted name.
func (p *parser) looseKey() (string, error) {
	if p.peek(0).kind == tokenString {
		return p.str("a property's key")
	}
	n, err := p.name("a property's key")
	return strings.Join(n.Parts(), "."), err
}

// dropCatalog reads what follows DROP CATALOG.
func (p *parser) dropCatalog() (Body, error) {
	var d DropCatalog
	d.IfExists = p.accept("IF")
	if d.IfExists && !p.accept("EXISTS") {
		return nil, p.unexpected("EXISTS")
	}
	var err error
	if d.Name, err = p.ident("the name of a catalog"); err != nil {
		return nil, err
	}
	return &d, p.end()
}

// checkCatalog reads what follows CHECK.
func (p *parser) checkCatalog() (Body, error) {
	if !p.accept("CATALOG") {
		return nil, p.unexpected("CATALOG")
	}
	n, err := p.ident("the name of a catalog")
	if err != nil {
		return nil, err
	}
	return &CheckCatalog{Name: n}, p.end()
}
