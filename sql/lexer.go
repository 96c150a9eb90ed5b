package sql

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/firn-project/firn/commit"
)

// source is a script, kept for the places that errors name.
type source struct{ text string }

// place gives line and column of a byte offset, both from 1, the column in
// characters, and the line's text.
func (s *source) place(offset int) (line, column int, text string) {
	offset = max(0, min(offset, len(s.text)))
	before := s.text[:offset]
	line = strings.Count(before, "\n") + 1
	start := strings.LastIndexByte(before, '\n') + 1
	column = utf8.RuneCountInString(s.text[start:offset]) + 1
	text = s.text[start:]
	if end := strings.IndexByte(text, '\n'); end >= 0 {
		text = text[:end]
	}
	return line, column, strings.TrimSuffix(text, "\r")
}

// snippetWidth is how many characters of a long line are shown around a place.
const snippetWidth = 100

// snippet is the line with a caret under the place, on two lines.
func snippet(text string, column int) string {
	runes := []rune(strings.ReplaceAll(text, "\t", " "))
	at := min(column-1, len(runes))
	from, lead := 0, ""
	if at > snippetWidth*3/4 {
		from, lead = at-snippetWidth/2, "…"
	}
	to, tail := len(runes), ""
	if to-from > snippetWidth {
		to, tail = from+snippetWidth, "…"
	}
	pad := strings.Repeat(" ", at-from+utf8.RuneCountInString(lead))
	return "  " + lead + string(runes[from:to]) + tail + "\n  " + pad + "^"
}

// errorAt is an error about a place in the script. Without a hint it has that of
// its code; the line with a caret follows it.
func (s *source) errorAt(code commit.Code, op string, offset int, cause, hint string) *commit.Error {
	line, column, text := s.place(offset)
	if secretive.MatchString(s.text) {
		text = ""
	}
	if text != "" {
		if hint == "" {
			info, _ := commit.Explain(string(code))
			hint = info.Hint
		}
		hint += "\n" + snippet(text, column)
	}
	return &commit.Error{
		Code:   code,
		Op:     op,
		Object: fmt.Sprintf("at line %d, column %d", line, column),
		Cause:  errors.New(cause),
		Hint:   hint,
	}
}

// syntax is a syntax error at a place.
func (s *source) syntax(offset int, cause, hint string) *commit.Error {
	return s.errorAt(commit.CodeSQLSyntax, "parse statement", offset, cause, hint)
}

// QuoteIdent writes an identifier with double quotes, as DuckDB and statements read it.
func QuoteIdent(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }

// quoteString writes a string literal.
func quoteString(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// quoteIfNeeded quotes an identifier that isn't a plain lower-case word.
func quoteIfNeeded(s string) string {
	for i := range len(s) {
		c := s[i]
		if c == '_' || c >= 'a' && c <= 'z' || i > 0 && c >= '0' && c <= '9' {
			continue
		}
		return QuoteIdent(s)
	}
	if s == "" || reserved[s] {
		return QuoteIdent(s)
	}
	return s
}

// reserved words can't be identifiers without quotes, here or in DuckDB.
var reserved = setOf("all analyse analyze and any array as asc asymmetric both case cast check collate column " +
	"constraint create default deferrable desc describe distinct do else end except false fetch for foreign from " +
	"group having in initially intersect into lambda lateral leading limit not null offset on only or order pivot " +
	"pivot_longer pivot_wider placing primary qualify references returning select show some summarize symmetric " +
	"table then to trailing true union unique unpivot using variadic when where window with")

// setOf makes a set of the words of a text.
func setOf(words string) map[string]bool {
	set := map[string]bool{}
	for w := range strings.FieldsSeq(words) {
		set[w] = true
	}
	return set
}

// tokenKind sorts the tokens of a script.
type tokenKind uint8

const (
	tokenWord   tokenKind = iota + 1 // a bare identifier or keyword
	tokenQuoted                      // "…" or `…`
	tokenString                      // '…', E'…', $tag$…$tag$
	tokenNumber
	tokenOther // one character of anything else
)

// token is one token; start and end are byte offsets. text is the token as
// written, for quoted identifiers and strings the value.
type token struct {
	kind       tokenKind
	start, end int
	text       string
	// backtick marks an identifier that DuckDB can't read as written.
	backtick bool
	// coded marks a string with \x, \u or octal escapes, whose value isn't
	// decoded here: only DuckDB reads such strings.
	coded bool
}

// word says whether the token is one of the bare keywords, in any case.
func (t token) word(keywords ...string) bool {
	if t.kind != tokenWord {
		return false
	}
	for _, k := range keywords {
		if strings.EqualFold(t.text, k) {
			return true
		}
	}
	return false
}

// is says whether the token is the one character c.
func (t token) is(c string) bool { return t.kind == tokenOther && t.text == c }

// lexer cuts a script into tokens by DuckDB's rules: only so much of them that
// strings, quoted identifiers and comments begin and end where DuckDB sees
// them. spaces are the places of blanks that aren't ASCII.
type lexer struct {
	src    *source
	pos    int
	tokens []token
	spaces []token
}

// lex reads the whole script. The error is a *commit.Error.
func lex(src *source) (*lexer, error) {
	l := &lexer{src: src}
	text := src.text
	if i := strings.IndexByte(text, 0); i >= 0 {
		return nil, src.syntax(i, "the text holds a NUL character", "")
	}
	if !utf8.ValidString(text) {
		return nil, src.syntax(firstInvalid(text), "the text isn't valid UTF-8", "Save the script as UTF-8.")
	}
	for l.pos < len(text) {
		if err := l.next(); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func firstInvalid(s string) int {
	for i, r := range s {
		if r == utf8.RuneError {
			if _, n := utf8.DecodeRuneInString(s[i:]); n == 1 {
				return i
			}
		}
	}
	return 0
}

// next reads one token, one comment or one blank.
func (l *lexer) next() error {
	text, start := l.src.text, l.pos
	c := text[start]
	rest := text[start:]
	switch {
	case c == ' ' || c >= '\t' && c <= '\r':
		l.pos++
		return nil
	case strings.HasPrefix(rest, "--"):
		if n := strings.IndexAny(rest, "\n\r"); n >= 0 {
			l.pos += n
		} else {
			l.pos = len(text)
		}
		return nil
	case strings.HasPrefix(rest, "/*"):
		return l.blockComment()
	case c == '\'':
		return l.str(start, start, false)
	case (c == 'e' || c == 'E') && len(rest) > 1 && rest[1] == '\'':
		return l.str(start, start+1, true)
	case c == '"' || c == '`':
		return l.quoted(c)
	case c == '$':
		if n := dollarTag(rest); n > 0 {
			return l.dollar(n)
		}
	case c >= '0' && c <= '9' || c == '.' && len(rest) > 1 && rest[1] >= '0' && rest[1] <= '9':
		l.number()
		return nil
	case c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
		l.word()
		return nil
	case c >= utf8.RuneSelf:
		if r, n := utf8.DecodeRuneInString(rest); isSpace(r) {
			l.spaces = append(l.spaces, token{start: start, end: start + n})
			l.pos += n
			return nil
		}
		l.word()
		return nil
	}
	l.pos++
	l.emit(tokenOther, start, text[start:l.pos])
	return nil
}

// isSpace says which characters beyond ASCII DuckDB takes for a blank: all of
// Unicode's and some without a width.
func isSpace(r rune) bool {
	return unicode.IsSpace(r) || r >= '\u200b' && r <= '\u200d' || r == '\u2060' || r == '\ufeff'
}

func (l *lexer) emit(kind tokenKind, start int, text string) {
	l.tokens = append(l.tokens, token{kind: kind, start: start, end: l.pos, text: text})
}

func (l *lexer) blockComment() error {
	text, start, depth := l.src.text, l.pos, 0
	for i := start; i+1 < len(text); {
		switch text[i : i+2] {
		case "/*":
			depth++
			i += 2
		case "*/":
			depth--
			i += 2
			if depth == 0 {
				l.pos = i
				return nil
			}
		default:
			i++
		}
	}
	return l.src.syntax(start, "this comment has no end", "Close it with */; comments nest.")
}

// str reads a string whose opening quote is at open. Only an E string has
// escapes by backslash.
func (l *lexer) str(start, open int, escapes bool) error {
	text := l.src.text
	var b strings.Builder
	coded := false
	for i := open + 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\'' && i+1 < len(text) && text[i+1] == '\'':
			b.WriteByte('\'')
			i++
		case c == '\'':
			l.pos = i + 1
			l.emit(tokenString, start, b.String())
			l.tokens[len(l.tokens)-1].coded = coded
			return nil
		case c == '\\' && escapes && i+1 < len(text):
			i++
			coded = coded || strings.IndexByte("xuU01234567", text[i]) >= 0
			b.WriteByte(unescape(text[i]))
		default:
			b.WriteByte(c)
		}
	}
	return l.src.syntax(start, "this string has no end", "Close it with '; a quote inside a string is written twice.")
}

func unescape(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 't':
		return '\t'
	case 'r':
		return '\r'
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	}
	return c
}

func (l *lexer) quoted(quote byte) error {
	text, start := l.src.text, l.pos
	var b strings.Builder
	for i := start + 1; i < len(text); i++ {
		if text[i] != quote {
			b.WriteByte(text[i])
			continue
		}
		if i+1 < len(text) && text[i+1] == quote {
			b.WriteByte(quote)
			i++
			continue
		}
		if b.Len() == 0 {
			return l.src.syntax(start, "an identifier can't be empty", "")
		}
		l.pos = i + 1
		l.emit(tokenQuoted, start, b.String())
		l.tokens[len(l.tokens)-1].backtick = quote == '`'
		return nil
	}
	return l.src.syntax(start, "this quoted identifier has no end", "Close it with "+string(quote)+".")
}

// dollarTag gives the length of $tag$ at the start of s, 0 if there's none.
func dollarTag(s string) int {
	for i := 1; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '$':
			return i + 1
		case c == '_' || c >= utf8.RuneSelf || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
		case i > 1 && c >= '0' && c <= '9':
		default:
			return 0
		}
	}
	return 0
}

func (l *lexer) dollar(n int) error {
	text, start := l.src.text, l.pos
	tag := text[start : start+n]
	end := strings.Index(text[start+n:], tag)
	if end < 0 {
		return l.src.syntax(start, "this string has no end", "Close it with "+tag+".")
	}
	value := text[start+n : start+n+end]
	l.pos = start + n + end + n
	l.emit(tokenString, start, value)
	return nil
}

func (l *lexer) number() {
	text, start := l.src.text, l.pos
	for l.pos < len(text) {
		c := text[l.pos]
		sign := (c == '+' || c == '-') && l.pos > start && (text[l.pos-1] == 'e' || text[l.pos-1] == 'E') &&
			l.pos+1 < len(text) && text[l.pos+1] >= '0' && text[l.pos+1] <= '9'
		if c != '.' && c != '_' && !sign && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			break
		}
		l.pos++
	}
	l.emit(tokenNumber, start, text[start:l.pos])
}

func (l *lexer) word() {
	text, start := l.src.text, l.pos
	for l.pos < len(text) {
		r, n := utf8.DecodeRuneInString(text[l.pos:])
		if r < utf8.RuneSelf && r != '_' && r != '$' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') ||
			r >= utf8.RuneSelf && isSpace(r) {
			break
		}
		l.pos += n
	}
	l.emit(tokenWord, start, text[start:l.pos])
}
