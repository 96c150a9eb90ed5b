package sql

import (
	"fmt"
	"slices"

	"github.com/firn-project/firn/plan"
)

const (
	// taskBytes is how much of a source one task reads, if there are more
	// bytes than two tasks a slot would take.
	taskBytes = 64 << 20
	// smallSource is below what a second task costs more than it saves, for
	// many small files: a file of several row groups is always cut.
	smallSource = 1 << 20
	// spreadBytes is how much input makes it worth to spread the rows of a
	// query that runs whole over several writers.
	spreadBytes = 64 << 20
	// hashTasks is how many writers a slot gets after a hash exchange. Table
	// partitions are few and unequal, and a slot that is done with one takes
	// the next.
	hashTasks = 4
	// manyTasks is how many tasks a slot gets at most before what they write is
	// worth an exchange.
	manyTasks = 4
	// fewRows is how many rows of a VALUES list one writer takes.
	fewRows = 10000
)

// plan makes the query's plan node: in parallel when the result is the same
// for any cut of its one source.
func (b *bound) plan(sql string, columns []plan.Column, opts BindOptions) *plan.Query {
	q := &plan.Query{SQL: sql, Sources: b.probe.Sources, Columns: columns, RejectLimit: opts.RejectLimit}
	// What an engine gives for one ticket is the same part each time, but nobody
	// promises the same order, nor that a query gives the same rows again.
	q.Deterministic = b.probe.Deterministic && !slices.ContainsFunc(q.Sources, isFlight)
	q.Parallel, q.Why = b.probe.Parallel()
	if !q.Parallel {
		return q
	}
	if q.Sources[0].Kind == plan.SourceFrame {
		return q // it is cut by the sizes of its pieces
	}
	q.Partitions = cut(q.Sources[0], opts.Slots)
	if isFlight(q.Sources[0]) {
		return q // also with one endpoint: its rows then needn't be there all at once
	}
	if len(q.Partitions) < 2 {
		q.Parallel, q.Partitions = false, nil
		q.Why = fmt.Sprintf("its source is small (%d bytes) or can't be cut", sourceBytes(q.Sources[0]))
	}
	return q
}

// few says whether the query gives few rows: a VALUES list, or what becomes row
// by row of a small source.
func (b *bound) few() bool {
	switch len(b.probe.Sources) {
	case 0:
		return b.values && len(b.items) > 0 && len(b.items[0]) <= fewRows
	case 1:
		s := b.probe.Sources[0]
		return b.probe.RowWise && s.Kind != plan.SourceUpload && sourceBytes(s) < smallSource
	}
	return false
}

func isFlight(s plan.Source) bool { return s.Kind == plan.SourceFlightSQL }

func sourceBytes(s plan.Source) (n int64) {
	if s.Frame != nil {
		return s.Frame.Bytes
	}
	if isFlight(s) && s.Flight.Bytes < 0 {
		return spreadBytes + 1 // an engine is asked for much, as a rule
	}
	for _, f := range s.Files {
		n += f.Size
	}
	return n
}

// piece is the smallest thing that goes to one task: a row group, or a file
// whose inside isn't known.
type piece struct {
	file       int
	first, end int64 // rows; both 0 for the whole file
	bytes      int64
}

func pieces(s plan.Source) (out []piece) {
	for i, f := range s.Files {
		if len(f.RowGroups) < 2 {
			out = append(out, piece{file: i, bytes: f.Size})
			continue
		}
		var compressed, row int64
		for _, g := range f.RowGroups {
			compressed += g.Bytes
		}
		for _, g := range f.RowGroups {
			if g.Rows == 0 {
				continue
			}
			p := piece{file: i, first: row, end: row + g.Rows, bytes: f.Size / int64(len(f.RowGroups))}
			if compressed > 0 {
				p.bytes = int64(float64(f.Size) * float64(g.Bytes) / float64(compressed))
			}
			out = append(out, p)
			row += g.Rows
		}
	}
	return out
}

// cut divides a source among tasks: runs of pieces in plan order, of about the
// same number of bytes.
func cut(s plan.Source, slots int) [][]plan.SourceFile {
	if isFlight(s) { // each endpoint by itself
		out := make([][]plan.SourceFile, len(s.Files))
		for i := range s.Files {
			out[i] = s.Files[i : i+1]
		}
		return out
	}
	total, all := sourceBytes(s), pieces(s)
	if total < smallSource && len(all) == len(s.Files) {
		return nil
	}
	tasks := min(len(all), max(int((total+taskBytes-1)/taskBytes), 2*slots))
	var out [][]plan.SourceFile
	left := int64(0)
	for _, p := range all {
		left += p.bytes
	}
	for n := tasks; n > 0 && len(all) > 0; n-- {
		share, took, k := left/int64(n), int64(0), 0
		// Leave a piece for each task to come, and stop nearest to the share.
		for k < len(all)-(n-1) && (k == 0 || n == 1 || took+all[k].bytes/2 <= share) {
			took += all[k].bytes
			k++
		}
		left -= took
		out = append(out, sliceFiles(s.Files, all[:k]))
		all = all[k:]
	}
	return out
}

// sliceFiles joins neighbouring pieces of one file.
func sliceFiles(files []plan.SourceFile, run []piece) []plan.SourceFile {
	var out []plan.SourceFile
	last := -1
	for _, p := range run {
		if p.file == last && p.end > 0 {
			out[len(out)-1].End = p.end
			continue
		}
		f := files[p.file]
		f.RowGroups, f.First, f.End = nil, p.first, p.end
		out = append(out, f)
		last = p.file
	}
	for i := range out {
		if out[i].First == 0 && out[i].Rows >= 0 && out[i].End == out[i].Rows {
			out[i].End = 0 // the whole file
		}
	}
	return out
}
