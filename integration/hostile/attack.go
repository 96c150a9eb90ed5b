package hostile

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/sinks"
	"github.com/firn-project/firn/sinks/iceberg"
)

// attack is one lie. What isn't set is done honestly.
type attack struct {
	// forge changes what the manifest says of the files that were written.
	forge func(files []commit.File, f Facts) []commit.File
	// report changes the status of an attempt.
	report func(*firnpb.TaskStatus)
	// serve is what a reader of the manifest gets.
	serve func(e *executor, b arrow.RecordBatch, stream flight.FlightService_DoGetServer) error
	// call is made before anything is reported; the answers to it are told.
	call func(e *executor, held []task, f Facts) []string
	// probe answers a probe.
	probe func(plan.ProbeRequest) plan.ProbeResult
	// silent attempts aren't reported at all.
	silent bool
}

// first forges the first file.
func first(edit func(*commit.File, Facts)) func([]commit.File, Facts) []commit.File {
	return func(files []commit.File, f Facts) []commit.File {
		edit(&files[0], f)
		return files
	}
}

// split gives the path's directory, with the slash, and its name.
func split(path string) (dir, name string) {
	at := strings.LastIndexByte(path, '/') + 1
	return path[:at], path[at:]
}

const (
	field     = 1 // of the table's first column, a bigint
	millions  = 1 << 20
	absurd    = int64(math.MaxInt64)
	giantText = 16 << 20
	batch     = 20_000 // rows of a manifest
)

// strike makes the attack of the tasks that are held.
func (e *executor) strike(a attack, held []task, f Facts, to *Answer) error {
	if a.call != nil {
		to.Said = a.call(e, held, f)
	}
	for _, t := range held {
		if a.silent {
			continue
		}
		files, err := e.write(t)
		if err != nil {
			return err
		}
		if a.forge != nil {
			files = a.forge(files, f)
		}
		b, err := wire.EncodeManifest(files)
		if err != nil {
			return err
		}
		st := status(t.def)
		st.Files = uint32(len(files)) //nolint:gosec // as many as an attack has
		for _, file := range files {
			st.RowsOut += file.Rows
			st.BytesOut += file.Size
		}
		st.Outputs = []*firnpb.TaskOutput{{Rows: int64(len(files)), Bytes: 100}}
		if a.report != nil {
			a.report(st)
		}
		serve := a.serve
		if serve == nil {
			serve = once
		}
		e.mu.Lock()
		e.served[t.def.GetAttemptId()] = func(s flight.FlightService_DoGetServer) error { return serve(e, b, s) }
		e.mu.Unlock()
		e.report(st)
	}
	return nil
}

// once serves a manifest as an honest executor does.
func once(_ *executor, b arrow.RecordBatch, stream flight.FlightService_DoGetServer) error {
	w := flight.NewRecordWriter(stream, ipc.WithSchema(b.Schema()))
	for from := int64(0); from < b.NumRows(); from += batch {
		if err := w.Write(b.NewSlice(from, min(from+batch, b.NumRows()))); err != nil {
			return err
		}
	}
	return w.Close()
}

// write writes a data file of ten rows.
func (e *executor) write(t task) ([]commit.File, error) {
	ctx, cancel := context.WithTimeout(e.life, 20*time.Second)
	defer cancel()
	c := t.write.Context
	w, err := sinks.Open(ctx, iceberg.New(), sinks.Options{
		Context: sinks.Context{
			Table: c.Table, FormatVersion: c.FormatVersion, SchemaJSON: c.Layout.SchemaJSON, SpecJSON: c.Layout.SpecJSON,
			SortOrderJSON: c.SortOrderJSON, Properties: c.Properties, Prefix: c.Prefix, TargetFileSize: c.TargetFileSize,
		},
		Attempt: t.def.GetAttemptId(), Stage: int(t.def.GetStage()), Task: int(t.def.GetTask()), Store: objstore.New(objstore.FromStorage(c.Storage)),
	})
	if err != nil {
		return nil, err
	}
	rows := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{
		{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true}, {Name: "s", Type: arrow.BinaryTypes.String, Nullable: true},
	}, nil))
	defer rows.Release()
	for i := range int64(10) {
		rows.Field(0).(*array.Int64Builder).Append(i)
		rows.Field(1).(*array.StringBuilder).Append(fmt.Sprint("row ", i))
	}
	b := rows.NewRecordBatch()
	defer b.Release()
	if err := w.Write(ctx, b); err != nil {
		return nil, err
	}
	return w.Close(ctx)
}
