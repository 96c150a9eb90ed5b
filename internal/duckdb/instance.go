//go:build duckdb_arrow

package duckdb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	bindings "github.com/duckdb/duckdb-go-bindings"
)

// Instance is a locked in-memory database with one connection. It serves one
// caller at a time: while a Rows is open, nothing else may be called but the
// Rows' own methods.
type Instance struct {
	db      bindings.Database
	conn    bindings.Connection
	options bindings.ArrowOptions
	// selected is the last text that Tree found to be one SELECT. Whether it is
	// depends on nothing but the text, so a text is looked at once.
	selected string
	// serializer is prepared when serializes is set.
	serializer bindings.PreparedStatement
	serializes bool
}

// Column is a column of a query: its name and type as DuckDB writes them.
type Column struct{ Name, Type string }

// Close frees the instance and everything in it. Rows must be closed before.
// Closing twice does nothing.
func (in *Instance) Close() {
	bindings.DestroyPrepare(&in.serializer)
	bindings.DestroyArrowOptions(&in.options)
	bindings.Disconnect(&in.conn)
	bindings.Close(&in.db)
}

// interruptEvery is how often a cancelled call is interrupted again. Once isn't
// enough: DuckDB forgets an interrupt that comes before a statement has begun.
const interruptEvery = 5 * time.Millisecond

// guard runs call, which blocks in DuckDB, and interrupts it when ctx ends.
func (in *Instance) guard(ctx context.Context, call func()) {
	returned := make(chan struct{})
	watched := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(watched)
		tick := time.NewTicker(interruptEvery)
		defer tick.Stop()
		for {
			select {
			case <-returned:
				return
			default:
			}
			bindings.Interrupt(in.conn)
			select {
			case <-returned:
				return
			case <-tick.C:
			}
		}
	})
	call()
	close(returned)
	if !stop() {
		<-watched
	}
}

// Exec runs statements of our own making: views, schemas, attached databases.
// Never give it a user's text; that is what Query is for.
func (in *Instance) Exec(ctx context.Context, sql string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var res bindings.Result
	defer bindings.DestroyResult(&res)
	var state bindings.State
	in.guard(ctx, func() { state = bindings.Query(in.conn, sql, &res) })
	if state == bindings.StateError {
		return failure(ctx, bindings.ResultError(&res))
	}
	return nil
}

// Query starts one SELECT and streams its result: DuckDB works as far ahead as
// about a megabyte. Anything but one query is refused with ErrNotSelect before
// DuckDB prepares it: preparing alone has effects for some statements, EXPORT
// DATABASE makes its directory. The caller closes the Rows.
func (in *Instance) Query(ctx context.Context, sql string) (*Rows, error) {
	return in.QueryWith(ctx, memory.DefaultAllocator, sql)
}

// QueryWith is Query with the batches allocated from mem.
func (in *Instance) QueryWith(ctx context.Context, mem memory.Allocator, sql string) (*Rows, error) {
	if err := in.oneSelect(ctx, sql); err != nil {
		return nil, err
	}
	return in.run(ctx, mem, sql)
}

// run is Query for text that is known to be harmless.
func (in *Instance) run(ctx context.Context, mem memory.Allocator, sql string) (*Rows, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var stmt bindings.PreparedStatement
	defer bindings.DestroyPrepare(&stmt)
	var state bindings.State
	in.guard(ctx, func() { state = bindings.Prepare(in.conn, sql, &stmt) })
	if state == bindings.StateError {
		return nil, failure(ctx, bindings.PrepareError(stmt))
	}
	return in.start(ctx, mem, stmt)
}

// start runs a prepared statement.
func (in *Instance) start(ctx context.Context, mem memory.Allocator, stmt bindings.PreparedStatement) (*Rows, error) {
	var state bindings.State
	var pending bindings.PendingResult
	defer bindings.DestroyPending(&pending)
	in.guard(ctx, func() { state = bindings.PendingPreparedStreaming(stmt, &pending) })
	if state == bindings.StateError {
		return nil, failure(ctx, bindings.PendingError(pending))
	}
	r := &Rows{in: in, mem: mem}
	in.guard(ctx, func() { state = bindings.ExecutePending(pending, &r.res) })
	if state == bindings.StateError {
		defer bindings.DestroyResult(&r.res)
		return nil, failure(ctx, bindings.ResultError(&r.res))
	}
	schema, err := in.schemaOf(&r.res)
	if err == nil {
		err = r.use(schema)
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (in *Instance) schemaOf(res *bindings.Result) (*arrow.Schema, error) {
	n := bindings.ColumnCount(res)
	names := make([]string, n)
	types := make([]bindings.LogicalType, n)
	for i := range n {
		names[i] = bindings.ColumnName(res, i)
		types[i] = bindings.ColumnLogicalType(res, i)
	}
	defer func() {
		for i := range types {
			bindings.DestroyLogicalType(&types[i])
		}
	}()
	schema, ed := bindings.NewArrowSchema(in.options, types, names)
	if err := takeErrorData(ed); err != nil {
		return nil, fmt.Errorf("duckdb: schema of the result: %w", err)
	}
	return schema, nil
}

// oneSelect refuses text that isn't one SELECT, as Tree does.
func (in *Instance) oneSelect(ctx context.Context, sql string) error {
	if sql == in.selected && sql != "" {
		return nil
	}
	_, err := in.Tree(ctx, sql)
	return err
}

// Tree gives DuckDB's parse tree of one SELECT, decoded from JSON. Other
// statements, and several at once, fail with an error that wraps ErrNotSelect;
// text that doesn't parse with an *Error.
func (in *Instance) Tree(ctx context.Context, sql string) (map[string]any, error) {
	raw, err := in.serialize(ctx, sql)
	if err != nil {
		return nil, err
	}
	var tree map[string]any
	if err := json.Unmarshal([]byte(raw), &tree); err != nil {
		return nil, fmt.Errorf("duckdb: parse tree: %w", err)
	}
	message, _ := tree["error_message"].(string)
	statements, _ := tree["statements"].([]any)
	switch {
	case tree["error"] != false && tree["error_type"] == "parser":
		return nil, &Error{Type: "Parser", Message: message}
	case tree["error"] != false:
		return nil, fmt.Errorf("%w: %s", ErrNotSelect, message)
	case len(statements) != 1:
		return nil, fmt.Errorf("%w: the text holds %d statements", ErrNotSelect, len(statements))
	}
	in.selected = sql
	return tree, nil
}

// serialize gives what DuckDB's json_serialize_sql says of a text. The call is
// prepared once: planning it takes as long as parsing a small statement.
func (in *Instance) serialize(ctx context.Context, text string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", context.Cause(ctx)
	}
	// Statements end at a NUL where they are run, so none may be looked at.
	if strings.ContainsRune(text, 0) {
		return "", &Error{Type: "Parser", Message: "the text holds a NUL byte"}
	}
	if !in.serializes {
		if bindings.Prepare(in.conn, "SELECT json_serialize_sql(CAST($1 AS VARCHAR))", &in.serializer) == bindings.StateError {
			defer bindings.DestroyPrepare(&in.serializer)
			return "", failure(ctx, bindings.PrepareError(in.serializer))
		}
		in.serializes = true
	}
	if bindings.BindVarchar(in.serializer, 1, text) == bindings.StateError {
		return "", failure(ctx, bindings.PrepareError(in.serializer))
	}
	rows, err := in.start(ctx, memory.DefaultAllocator, in.serializer)
	if err != nil {
		return "", err
	}
	all, err := rows.strings(ctx)
	if err != nil {
		return "", err
	}
	if len(all) != 1 || len(all[0]) != 1 {
		return "", errors.New("duckdb: the parser gave no tree")
	}
	return all[0][0], nil
}

// Strings runs a query of our own and gives its small result as text; null is
// the empty string.
func (in *Instance) Strings(ctx context.Context, sql string) ([][]string, error) {
	rows, err := in.run(ctx, memory.DefaultAllocator, sql)
	if err != nil {
		return nil, err
	}
	return rows.strings(ctx)
}

// strings reads all rows as text and closes them.
func (r *Rows) strings(ctx context.Context) ([][]string, error) {
	defer r.Close()
	var out [][]string
	for {
		rec, err := r.Next(ctx)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		out = appendText(out, rec)
		rec.Release()
	}
}

func appendText(out [][]string, rec arrow.RecordBatch) [][]string {
	for i := range int(rec.NumRows()) {
		row := make([]string, rec.NumCols())
		for j, c := range rec.Columns() {
			switch {
			case c.IsNull(i):
			case c.DataType().ID() == arrow.STRING:
				row[j] = c.(*array.String).Value(i)
			default:
				row[j] = c.ValueStr(i)
			}
		}
		out = append(out, row)
	}
	return out
}

// Describe gives the columns of a query without running it.
func (in *Instance) Describe(ctx context.Context, sql string) ([]Column, error) {
	if err := in.oneSelect(ctx, sql); err != nil {
		return nil, err
	}
	rows, err := in.Strings(ctx, "DESCRIBE "+sql)
	if err != nil {
		return nil, err
	}
	cols := make([]Column, len(rows))
	for i, r := range rows {
		cols[i] = Column{Name: r[0], Type: r[1]}
	}
	return cols, nil
}

// ExplainJSON gives DuckDB's physical plan of a query as JSON, without running
// it: an array of nodes with name, children and extra_info.
func (in *Instance) ExplainJSON(ctx context.Context, sql string) (string, error) {
	if err := in.oneSelect(ctx, sql); err != nil {
		return "", err
	}
	rows, err := in.Strings(ctx, "EXPLAIN (FORMAT JSON) "+sql)
	if err != nil {
		return "", err
	}
	for _, r := range rows {
		if r[0] == "physical_plan" {
			return r[1], nil
		}
	}
	return "", errors.New("duckdb: EXPLAIN gave no physical plan")
}
