//go:build duckdb_arrow

package duckdb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"
)

// Parser is DuckDB's parser on an instance of its own that holds nothing and
// may open nothing: text goes in, text comes out, no user's statement is ever
// run. It implements the sql package's TreeParser and is safe for concurrent
// use; calls take turns.
type Parser struct {
	mu sync.Mutex
	in *Instance
}

// parserMemory is enough for the tree of a statement of several megabytes.
const parserMemory = 2 << 30

// NewParser opens a parser. The caller closes it.
func NewParser() (*Parser, error) {
	in, err := Open(context.Background(), Config{Threads: 1, MemoryLimit: parserMemory})
	if err != nil {
		return nil, err
	}
	return &Parser{in: in}, nil
}

// Close frees the parser. It waits for a call that runs.
func (p *Parser) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.in.Close()
}

// ParseError is DuckDB's complaint about a text.
type ParseError struct {
	Message string
	offset  int
}

// NewParseError makes the complaint again that a parser in another process had.
func NewParseError(message string, offset int) *ParseError {
	return &ParseError{Message: message, offset: offset}
}

// Error gives DuckDB's message.
func (e *ParseError) Error() string { return e.Message }

// Offset is where in the text the complaint is about, in bytes, or -1.
func (e *ParseError) Offset() int { return e.offset }

// ParseSelect gives the tree of one SELECT as JSON, as json_serialize_sql writes
// it. Text that doesn't parse, or that isn't exactly one SELECT, fails with a
// *ParseError.
func (p *Parser) ParseSelect(ctx context.Context, text string) ([]byte, error) {
	p.mu.Lock()
	out, err := p.in.serialize(ctx, text)
	p.mu.Unlock()
	if e, ok := errors.AsType[*Error](err); ok && e.Type == "Parser" {
		return nil, &ParseError{Message: withoutSettings(e.Message), offset: -1}
	}
	if err != nil {
		return nil, err
	}
	if len(out) > 0 && out[:min(len(out), 13)] == `{"error":true` {
		var head struct {
			Message  string `json:"error_message"`
			Type     string `json:"error_type"`
			Position string `json:"position"`
		}
		if err := json.Unmarshal([]byte(out), &head); err != nil {
			return nil, fmt.Errorf("duckdb: parse tree: %w", err)
		}
		e := &ParseError{Message: withoutSettings(head.Message), offset: -1}
		if head.Type == "not implemented" {
			e.Message = "this isn't a query: " + head.Message
		}
		var n int
		if _, err := fmt.Sscanf(head.Position, "%d", &n); err == nil {
			e.offset = byteOffset(text, n)
		}
		return nil, e
	}
	return []byte(out), nil
}

// withoutSettings leaves out advice to change DuckDB's settings, which nobody can, and
// says what helps instead.
func withoutSettings(message string) string {
	if what, _, found := strings.Cut(message, `Use "SET max_expression_depth`); found {
		return strings.TrimSpace(what) + " Split it into several statements, or into subqueries that come one after the other."
	}
	return message
}

// byteOffset turns DuckDB's position, in characters, into bytes.
func byteOffset(text string, characters int) int {
	offset := 0
	for range characters {
		if offset >= len(text) {
			break
		}
		_, n := utf8.DecodeRuneInString(text[offset:])
		offset += n
	}
	return offset
}

// FormatSelect gives the text of a tree that ParseSelect made, changed or not.
func (p *Parser) FormatSelect(ctx context.Context, tree []byte) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rows, err := p.in.Strings(ctx, "SELECT json_deserialize_sql(CAST("+Quote(string(tree))+" AS JSON))")
	if err != nil {
		return "", err
	}
	if len(rows) != 1 || len(rows[0]) != 1 {
		return "", errors.New("duckdb: the tree gave no text")
	}
	return rows[0][0], nil
}
