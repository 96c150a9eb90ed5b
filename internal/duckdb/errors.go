//go:build duckdb_arrow

package duckdb

import (
	"context"
	"errors"
	"strings"

	bindings "github.com/duckdb/duckdb-go-bindings"
)

// Error is what DuckDB says about a statement that failed.
type Error struct {
	// Type is DuckDB's own name of the kind, without the word "Error":
	// "Binder", "Conversion", "Invalid Input", "IO", "Out of Memory".
	Type string
	// Message is DuckDB's text after the kind.
	Message string
}

// Error gives kind and message as DuckDB prints them.
func (e *Error) Error() string {
	if e.Type == "" {
		return e.Message
	}
	return e.Type + " Error: " + e.Message
}

// ErrNotSelect is returned by Query for a statement that isn't a query.
var ErrNotSelect = errors.New("only a SELECT can be run as a query")

// parseError splits DuckDB's text "Kind Error: message".
func parseError(text string) *Error {
	kind, msg, ok := strings.Cut(text, " Error: ")
	if !ok || len(kind) > 40 || strings.ContainsAny(kind, "\n:\"'") {
		return &Error{Message: text}
	}
	return &Error{Type: kind, Message: msg}
}

// failure turns DuckDB's text into an error. A query that ctx interrupted fails
// with ctx's error, whatever DuckDB says about it.
func failure(ctx context.Context, text string) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return parseError(text)
}

// takeErrorData frees ed and gives what it says, nil for no error.
func takeErrorData(ed bindings.ErrorData) error {
	defer bindings.DestroyErrorData(&ed)
	if !bindings.ErrorDataHasError(ed) {
		return nil
	}
	return parseError(bindings.ErrorDataMessage(ed))
}
