package ducktype

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Kind is a kind of type.
type Kind int

// Kinds of types.
const (
	Plain Kind = iota
	List
	Map
	Struct
	Enum
)

// Type is a parsed type.
type Type struct {
	Kind Kind
	// Name is what a Plain type is called, and Args what stands in its parentheses.
	Name *Name
	Args []int
	// Elem has a list's element, a map's key and value, or a struct's fields.
	Elem []Elem
}

// Elem is a part of a nested type. Only a struct's fields have names.
type Elem struct {
	Name     string
	Type     *Type
	Required bool
}

// maxTypeDepth bounds the nesting of a type, so that a hostile text can't
// exhaust the stack.
const maxTypeDepth = 64

// Parse reads a type:
//
//	type   = base { "[" [ number ] "]" }
//	base   = word { word } [ "(" number { "," number } ")" ]
//	       | ("STRUCT" | "ROW") ( "(" fields ")" | "<" fields ">" )
//	       | "MAP" ( "(" type "," type ")" | "<" type "," type ">" )
//	       | ("LIST" | "ARRAY") "<" type ">"
//	       | "ENUM" "(" string { "," string } ")"
//	fields = name [ ":" ] type [ "NOT" "NULL" ] { "," … }
func Parse(text string) (*Type, error) {
	p := &typeParser{text: text}
	p.next()
	t, err := p.parse(0)
	if err == nil && p.tok != "" {
		err = p.unexpected()
	}
	if err != nil {
		return nil, fmt.Errorf("type %q: %w", text, err)
	}
	return t, nil
}

// typeParser reads tokens: words, numbers, 'strings', "names" and single
// punctuation marks. tok is the current token, "" at the end.
type typeParser struct {
	text   string
	at     int
	tok    string
	quoted bool
}

func (p *typeParser) unexpected() error {
	if p.tok == "" {
		return errors.New("ends too early")
	}
	return fmt.Errorf("%q isn't expected here", p.tok)
}

func (p *typeParser) next() {
	p.quoted = false
	rest := strings.TrimLeftFunc(p.text[p.at:], unicode.IsSpace)
	p.at = len(p.text) - len(rest)
	if rest == "" {
		p.tok = ""
		return
	}
	r, size := utf8.DecodeRuneInString(rest)
	switch {
	case r == '"' || r == '\'' || r == '`':
		p.tok, p.quoted = quotedToken(rest, byte(r)), true
		p.at += len(p.tok)
	case unicode.IsLetter(r) || r == '_' || unicode.IsDigit(r):
		n := strings.IndexFunc(rest, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' && r != '$' })
		if n < 0 {
			n = len(rest)
		}
		p.tok = rest[:n]
		p.at += n
	default:
		p.tok = rest[:size]
		p.at += size
	}
}

// quotedToken gives the text up to and with the closing quote; a doubled quote
// stands for one. An unclosed quote gives the quote alone, which nothing takes.
func quotedToken(s string, q byte) string {
	for i := 1; i < len(s); i++ {
		if s[i] != q {
			continue
		}
		if i+1 < len(s) && s[i+1] == q {
			i++
			continue
		}
		return s[:i+1]
	}
	return s[:1]
}

func (p *typeParser) take(tok string) bool {
	if p.quoted || !strings.EqualFold(p.tok, tok) {
		return false
	}
	p.next()
	return true
}

func (p *typeParser) expect(tok string) error {
	if !p.take(tok) {
		return p.unexpected()
	}
	return nil
}

func (p *typeParser) parse(depth int) (*Type, error) {
	if depth > maxTypeDepth {
		return nil, fmt.Errorf("is nested more than %d levels deep", maxTypeDepth)
	}
	t, err := p.base(depth)
	if err != nil {
		return nil, err
	}
	for p.take("[") {
		if _, err := strconv.Atoi(p.tok); err == nil {
			p.next()
		}
		if err := p.expect("]"); err != nil {
			return nil, err
		}
		if depth++; depth > maxTypeDepth {
			return nil, fmt.Errorf("is nested more than %d levels deep", maxTypeDepth)
		}
		t = &Type{Kind: List, Elem: []Elem{{Type: t}}}
	}
	return t, nil
}

func (p *typeParser) base(depth int) (*Type, error) {
	switch {
	case p.take("STRUCT"), p.take("ROW"):
		return p.structType(depth)
	case p.take("MAP"):
		return p.generic(Map, 2, depth)
	case p.take("LIST"), p.take("ARRAY"):
		return p.generic(List, 1, depth)
	case p.take("ENUM"):
		return p.enum()
	case p.take("UNION"):
		return &Type{Name: Named("UNION")}, p.skipArgs()
	}
	return p.plain()
}

func (p *typeParser) open() (string, error) {
	if p.take("(") {
		return ")", nil
	}
	return ">", p.expect("<")
}

func (p *typeParser) structType(depth int) (*Type, error) {
	end, err := p.open()
	if err != nil {
		return nil, err
	}
	t := &Type{Kind: Struct}
	seen := map[string]bool{}
	for {
		name, err := p.name()
		if err != nil {
			return nil, err
		}
		if fold := strings.ToLower(name); seen[fold] {
			return nil, fmt.Errorf("two fields are called %q", name)
		} else {
			seen[fold] = true
		}
		p.take(":")
		ft, err := p.parse(depth + 1)
		if err != nil {
			return nil, err
		}
		required, err := p.notNull()
		if err != nil {
			return nil, err
		}
		t.Elem = append(t.Elem, Elem{Name: name, Type: ft, Required: required})
		if p.take(",") {
			continue
		}
		return t, p.expect(end)
	}
}

func (p *typeParser) name() (string, error) {
	tok := p.tok
	switch {
	case p.quoted && len(tok) > 2 && tok[0] != '\'':
		q := tok[:1]
		tok = strings.ReplaceAll(tok[1:len(tok)-1], q+q, q)
	case p.quoted || tok == "" || !isWord(tok):
		return "", p.unexpected()
	}
	p.next()
	return tok, nil
}

func isWord(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return unicode.IsLetter(r) || r == '_' || unicode.IsDigit(r)
}

func (p *typeParser) notNull() (bool, error) {
	if !p.take("NOT") {
		return false, nil
	}
	return true, p.expect("NULL")
}

// generic reads the n types of MAP(k, v), map<k, v> or list<t>.
func (p *typeParser) generic(kind Kind, n, depth int) (*Type, error) {
	end, err := p.open()
	if err != nil {
		return nil, err
	}
	t := &Type{Kind: kind}
	for i := range n {
		if i > 0 {
			if err := p.expect(","); err != nil {
				return nil, err
			}
		}
		et, err := p.parse(depth + 1)
		if err != nil {
			return nil, err
		}
		required, err := p.notNull()
		if err != nil {
			return nil, err
		}
		t.Elem = append(t.Elem, Elem{Type: et, Required: required})
	}
	return t, p.expect(end)
}

func (p *typeParser) enum() (*Type, error) {
	if err := p.expect("("); err != nil {
		return nil, err
	}
	for {
		if !p.quoted || p.tok[0] != '\'' {
			return nil, p.unexpected()
		}
		p.next()
		if !p.take(",") {
			return &Type{Kind: Enum}, p.expect(")")
		}
	}
}

// skipArgs skips the parenthesised arguments of a type that is refused anyway.
func (p *typeParser) skipArgs() error {
	if !p.take("(") {
		return nil
	}
	for depth := 1; depth > 0; p.next() {
		switch {
		case p.tok == "":
			return p.unexpected()
		case p.quoted:
		case p.tok == "(":
			depth++
		case p.tok == ")":
			depth--
		}
	}
	return nil
}

// plain reads a type of one or several words; the longest known name wins.
func (p *typeParser) plain() (*Type, error) {
	if p.quoted && strings.EqualFold(p.tok, `"NULL"`) {
		p.next()
		return &Type{Name: Named(Null)}, nil
	}
	if p.quoted || p.tok == "" || !isWord(p.tok) {
		return nil, p.unexpected()
	}
	name := strings.ToUpper(p.tok)
	p.next()
	args, err := p.args()
	if err != nil {
		return nil, err
	}
	for !p.quoted && p.tok != "" && isWord(p.tok) && extends(name, p.tok) {
		name += " " + strings.ToUpper(p.tok)
		p.next()
	}
	if len(args) == 0 {
		if args, err = p.args(); err != nil {
			return nil, err
		}
	}
	found := Named(name)
	if found == nil {
		return nil, fmt.Errorf("there's no type %s; see docs/reference/sql-types.md", name)
	}
	return &Type{Name: found, Args: args}, nil
}

// extends says whether some type's name goes on with the word.
func extends(name, word string) bool {
	longer := name + " " + strings.ToUpper(word)
	for i := range names {
		for _, n := range append([]string{names[i].Duck}, names[i].Also...) {
			if n == longer || strings.HasPrefix(n, longer+" ") {
				return true
			}
		}
	}
	return false
}

func (p *typeParser) args() ([]int, error) {
	if !p.take("(") {
		return nil, nil
	}
	var args []int
	for {
		n, err := strconv.Atoi(p.tok)
		if err != nil {
			return nil, p.unexpected()
		}
		p.next()
		args = append(args, n)
		if !p.take(",") {
			return args, p.expect(")")
		}
	}
}
