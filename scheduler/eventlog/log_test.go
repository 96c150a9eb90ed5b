package eventlog_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/firn-project/firn/scheduler/eventlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T) (*eventlog.Log, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "events")
	l, err := eventlog.Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l, dir
}

func lines(t *testing.T, path string) (all []eventlog.Event) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		var e eventlog.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, e)
	}
	return all
}

func TestOneFileAJobInOrder(t *testing.T) {
	l, dir := open(t)
	const jobs, events = 5, 100
	for n := range events {
		for j := range jobs {
			l.Note(eventlog.Event{Time: time.Now(), Job: fmt.Sprint("j-", j), Kind: eventlog.TaskEnded, Task: &n})
		}
	}
	l.Close()
	l.Note(eventlog.Event{Job: "j-0", Kind: eventlog.JobEnded}) // too late, and no harm
	for j := range jobs {
		all := lines(t, filepath.Join(dir, fmt.Sprintf("j-%d.jsonl", j)))
		if len(all) != events {
			t.Fatalf("%d lines", len(all))
		}
		for n, e := range all {
			if *e.Task != n || e.Job != fmt.Sprint("j-", j) {
				t.Fatalf("line %d is %+v", n, e)
			}
		}
	}
}

// A file is gone on with, as after a restart.
func TestAppends(t *testing.T) {
	l, dir := open(t)
	l.Note(eventlog.Event{Job: "j", Kind: eventlog.JobSubmitted})
	l.Close()
	again, err := eventlog.Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	again.Note(eventlog.Event{Job: "j", Kind: eventlog.JobEnded})
	again.Close()
	if all := lines(t, filepath.Join(dir, "j.jsonl")); len(all) != 2 || all[1].Kind != eventlog.JobEnded {
		t.Fatalf("%+v", all)
	}
}

func TestPrune(t *testing.T) {
	l, dir := open(t)
	l.Note(eventlog.Event{Job: "old", Kind: eventlog.JobEnded})
	l.Note(eventlog.Event{Job: "new", Kind: eventlog.JobEnded})
	l.Close()
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "old.jsonl"), past, past); err != nil {
		t.Fatal(err)
	}
	if err := l.Prune(t.Context(), time.Now().Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) != 1 || filepath.Base(left[0]) != "new.jsonl" {
		t.Fatalf("%v, %v", left, err)
	}
}

func TestNoPathLeavesTheDirectory(t *testing.T) {
	l, dir := open(t)
	l.Note(eventlog.Event{Job: "../../escaped", Kind: eventlog.JobEnded})
	l.Close()
	if _, err := os.Stat(filepath.Join(dir, "escaped.jsonl")); err != nil {
		t.Fatal(err)
	}
}

func TestNilLogTakesAll(t *testing.T) {
	var l *eventlog.Log
	l.Note(eventlog.Event{Job: "j"})
	if err := l.Prune(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	l.Close()
}
