package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/render"
)

// done writes the result of a statement that gives nothing.
func (r *runner) done(statement string) error {
	switch r.format {
	case render.JSON, render.JSONL:
		return render.Object(r.stdout, struct {
			Statement string `json:"statement"`
			OK        bool   `json:"ok"`
		}{statement, true})
	case render.CSV:
		r.hint("%s", statement)
		return nil
	default:
		_, err := fmt.Fprintln(r.stdout, statement)
		return err
	}
}

// answer writes rows that came with the scheduler's answer.
func (r *runner) answer(ctx context.Context, res *client.Result) error {
	if r.format == render.Text && res.Schema.NumFields() == 1 &&
		(strings.HasPrefix(res.Statement, "EXPLAIN") || res.Statement == "SHOW CREATE TABLE") {
		return r.verbatim(ctx, res)
	}
	_, err := render.Rows(r.stdout, r.format, res.Schema, res.Rows(ctx))
	return err
}

// verbatim writes text that has its own lines.
func (r *runner) verbatim(ctx context.Context, res *client.Result) error {
	for b, err := range res.Rows(ctx) {
		if err != nil {
			return err
		}
		col, ok := b.Column(0).(*array.String)
		if !ok {
			_, err := render.Rows(r.stdout, r.format, res.Schema, func(yield func(arrow.RecordBatch, error) bool) { yield(b, nil) })
			return err
		}
		for i := range col.Len() {
			if _, err := fmt.Fprintln(r.stdout, strings.TrimRight(col.Value(i), "\n")); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeJSON is what `firn sql -o json` gives for a write. Scripts depend on it.
type writeJSON struct {
	JobID           string         `json:"job_id"`
	Key             string         `json:"idempotency_key"`
	Statement       string         `json:"statement"`
	Deduplicated    bool           `json:"deduplicated"`
	State           string         `json:"state"`
	Commit          string         `json:"commit"`
	Table           string         `json:"table"`
	Format          string         `json:"format"`
	Operation       string         `json:"operation"`
	Rows            int64          `json:"rows"`
	Files           int64          `json:"files"`
	Bytes           int64          `json:"bytes"`
	SnapshotID      *string        `json:"snapshot_id"`
	Attempts        int            `json:"attempts"`
	Conflicts       int            `json:"conflicts"`
	Tasks           int            `json:"tasks"`
	Executors       []executorJSON `json:"executors"`
	RejectedRows    int64          `json:"rejected_rows"`
	OtherSubmission bool           `json:"other_submission"`
	RolledBack      bool           `json:"rolled_back"`
	DurationMS      int64          `json:"duration_ms"`
}

type executorJSON struct {
	ID    string `json:"id"`
	Tasks int    `json:"tasks"`
}

func writeObject(s client.JobStatus) writeJSON {
	w := writeJSON{
		JobID: s.ID, Key: s.Key, Statement: s.Statement, State: string(s.State), Commit: string(s.Commit), Table: s.Table,
		Tasks: s.Tasks, Executors: []executorJSON{}, RejectedRows: s.RejectedRows,
		DurationMS: s.Duration(time.Now()).Milliseconds(),
	}
	for _, e := range s.Executors {
		w.Executors = append(w.Executors, executorJSON{e.ID, e.Tasks})
	}
	if rep := s.Report; rep != nil {
		w.Deduplicated, w.Table, w.Format, w.Operation = rep.Deduplicated, rep.Table.String(), rep.Format, string(rep.Operation)
		w.Rows, w.Files, w.Bytes, w.Attempts, w.Conflicts = rep.Rows, rep.Files, rep.Bytes, rep.Attempts, rep.Conflicts
		w.OtherSubmission, w.RolledBack = rep.OtherSubmission, rep.RolledBack
		if rep.SnapshotID != "" {
			w.SnapshotID = &rep.SnapshotID
		}
	}
	return w
}

// written writes the result of a job that writes, also of one that failed.
func (r *runner) written(s client.JobStatus) error {
	w := writeObject(s)
	switch r.format {
	case render.JSON, render.JSONL:
		return render.Object(r.stdout, w)
	case render.CSV:
		return render.List(r.stdout, render.CSV, writeColumns, []writeJSON{w}, writeCells)
	}
	if s.Report != nil && r.flags.dryRun && w.Commit == string(commit.CommitNone) && s.State == client.StateSucceeded {
		_, err := fmt.Fprintf(r.stdout, "dry run: %s in %s (%s) for %s are complete and verified; nothing was committed, the files are deleted; job %s\n",
			count(int(w.Rows), "row"), count(int(w.Files), "file"), sizeText(w.Bytes), w.Table, w.JobID)
		return err
	}
	if s.Report == nil || s.State != client.StateSucceeded {
		return nil // the error says it all
	}
	_, err := fmt.Fprintln(r.stdout, writeText(w))
	return err
}

// writeText is a write in a sentence.
func writeText(w writeJSON) string {
	snapshot := "no snapshot, as there was nothing to add"
	if w.SnapshotID != nil {
		snapshot = "snapshot " + *w.SnapshotID
	}
	text := fmt.Sprintf("%s %s in %s (%s) to %s: %s, %s in %s by %s, job %s",
		w.Commit, count(int(w.Rows), "row"), count(int(w.Files), "file"), sizeText(w.Bytes), w.Table, snapshot,
		count(w.Attempts, "commit attempt"), (time.Duration(w.DurationMS) * time.Millisecond).String(),
		count(w.Tasks, "task")+" on "+count(len(w.Executors), "executor"), w.JobID)
	if w.OtherSubmission {
		text = "nothing of this run: another submission of the key was committed; " + text
	} else if w.Deduplicated {
		text = "nothing new: this key was committed before; " + text
	}
	if w.RolledBack {
		text += "; " + snapshot + " isn't in the table's history any more: somebody rolled the table back since, and the rows are gone with it"
	}
	return text
}

var writeColumns = []string{
	"job_id", "idempotency_key", "deduplicated", "state", "commit", "table", "format", "operation",
	"rows", "files", "bytes", "snapshot_id", "attempts", "tasks", "duration_ms",
}

func writeCells(w writeJSON) []string {
	snapshot := ""
	if w.SnapshotID != nil {
		snapshot = *w.SnapshotID
	}
	return []string{
		w.JobID, w.Key, strconv.FormatBool(w.Deduplicated), w.State, w.Commit, w.Table, w.Format, w.Operation,
		number(w.Rows), number(w.Files), number(w.Bytes), snapshot, strconv.Itoa(w.Attempts), strconv.Itoa(w.Tasks), number(w.DurationMS),
	}
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// count is a number and a noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return thousands(int64(n)) + " " + noun + "s"
}

// thousands groups digits.
func thousands(n int64) string {
	s := number(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// sizeText is a number of bytes for people.
func sizeText(n int64) string {
	f, units := float64(n), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for ; f >= 1024 && i < len(units)-1; i++ {
		f /= 1024
	}
	if i == 0 {
		return number(n) + " B"
	}
	return strconv.FormatFloat(f, 'f', 1, 64) + " " + units[i]
}
