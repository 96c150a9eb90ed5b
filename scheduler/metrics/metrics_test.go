package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/scheduler/metrics"
)

func TestNamesAndValues(t *testing.T) {
	m := metrics.New(slog.New(slog.DiscardHandler))
	m.Watch(func(context.Context) (metrics.Now, error) {
		return metrics.Now{Queued: 6, TasksPending: 7, Executors: map[string]int{"ready": 2}, QueueLength: map[string]int64{"iceberg": 3}, Unknown: map[string]int64{"delta": 1}, Orphans: map[string]int64{"delta": 40}, OpenWrites: 5, Leads: true}, nil
	})
	m.Job("succeeded", "insert", time.Second)
	m.Task(metrics.TaskSucceeded, time.Second)
	m.Task(metrics.TaskLost, 0)
	r := commit.Report{Format: "iceberg", Operation: commit.OperationAppend, State: commit.CommitCommitted, Files: 2, Rows: 10, Bytes: 100, Attempts: 3, Conflicts: 2}
	m.Commit(r, nil, time.Second, time.Millisecond)
	r.Deduplicated = true
	m.Commit(r, nil, time.Second, 0)
	r.State = commit.CommitRefused
	m.Commit(r, &commit.Error{Code: commit.CodeConflict}, time.Second, 0)
	changed := &commit.Error{Code: commit.CodeTableChanged, Conflict: commit.ConflictSchema}
	m.Commit(commit.Report{Format: "delta", Operation: commit.OperationAppend, State: commit.CommitRefused}, &commit.Error{Cause: changed}, time.Second, 0)
	m.Manifest()
	m.Duplicate()
	for i := range 40 {
		m.Catalog(fmt.Sprintf("c-%d", i), "GET", "200", time.Second)
	}
	m.Commit(r, &commit.Error{Code: commit.CodeVerification}, time.Second, 0)
	r.State = commit.CommitUnknown
	m.Commit(r, errors.New("silence"), time.Second, 0)
	r.State = commit.CommitNone
	m.Commit(r, errors.New("journal"), time.Second, 0)

	if problems, err := testutil.GatherAndLint(m.Gather()); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	want := `
# HELP firn_commit_conflicts_total Requests that lost their seat to another writer (kind ref_moved), and commits that were refused for what others did.
# TYPE firn_commit_conflicts_total counter
firn_commit_conflicts_total{format="delta",kind="schema"} 1
firn_commit_conflicts_total{format="iceberg",kind="ref_moved"} 12
# HELP firn_commit_queue_length Sealed commits that aren't through.
# TYPE firn_commit_queue_length gauge
firn_commit_queue_length{format="delta"} 0
firn_commit_queue_length{format="iceberg"} 3
# HELP firn_commit_state_unknown Commits whose outcome isn't known yet; nobody may resubmit them under another key.
# TYPE firn_commit_state_unknown gauge
firn_commit_state_unknown{format="delta"} 1
firn_commit_state_unknown{format="iceberg"} 0
# HELP firn_commits_total Commits that ended, and those whose outcome was told as unknown.
# TYPE firn_commits_total counter
firn_commits_total{format="delta",operation="append",outcome="refused"} 1
firn_commits_total{format="iceberg",operation="append",outcome="committed"} 2
firn_commits_total{format="iceberg",operation="append",outcome="conflict"} 1
firn_commits_total{format="iceberg",operation="append",outcome="error"} 1
firn_commits_total{format="iceberg",operation="append",outcome="refused"} 1
firn_commits_total{format="iceberg",operation="append",outcome="unknown"} 1
# HELP firn_executors Executors that are known.
# TYPE firn_executors gauge
firn_executors{state="drained"} 0
firn_executors{state="draining"} 0
firn_executors{state="passed_over"} 0
firn_executors{state="ready"} 2
firn_executors{state="returning"} 0
# HELP firn_jobs_queued Statements that wait to be planned.
# TYPE firn_jobs_queued gauge
firn_jobs_queued 6
# HELP firn_jobs_total Jobs that ended.
# TYPE firn_jobs_total counter
firn_jobs_total{operation="insert",state="succeeded"} 1
# HELP firn_leader 1 while this process leads; 0 once another one has taken its journal over.
# TYPE firn_leader gauge
firn_leader 1
# HELP firn_manifest_duplicates_total Successes with data files that didn't count: their task had one already, or their attempt was given up.
# TYPE firn_manifest_duplicates_total counter
firn_manifest_duplicates_total 1
# HELP firn_manifests_received_total File manifests that roots read.
# TYPE firn_manifests_received_total counter
firn_manifests_received_total 1
# HELP firn_open_writes Writes of other engines that are open.
# TYPE firn_open_writes gauge
firn_open_writes 5
# HELP firn_orphan_files Data files that are kept for commits which haven't landed: parked, or of an outcome that isn't known.
# TYPE firn_orphan_files gauge
firn_orphan_files{format="delta"} 40
firn_orphan_files{format="iceberg"} 0
# HELP firn_rows_written_total Rows of commits that landed.
# TYPE firn_rows_written_total counter
firn_rows_written_total{format="iceberg"} 10
# HELP firn_tasks_pending Tasks that wait for a slot.
# TYPE firn_tasks_pending gauge
firn_tasks_pending 7
# HELP firn_tasks_total Attempts of tasks that ended.
# TYPE firn_tasks_total counter
firn_tasks_total{outcome="lost"} 1
firn_tasks_total{outcome="succeeded"} 1
`
	names := []string{
		"firn_commit_conflicts_total", "firn_commit_queue_length", "firn_commit_state_unknown", "firn_commits_total", "firn_executors", "firn_jobs_queued", "firn_jobs_total",
		"firn_leader", "firn_manifest_duplicates_total", "firn_manifests_received_total", "firn_open_writes", "firn_orphan_files",
		"firn_rows_written_total", "firn_tasks_pending", "firn_tasks_total",
	}
	// Statements make catalogs: past a number of them they share a label.
	if n, err := testutil.GatherAndCount(m.Gather(), "firn_catalog_requests_total"); err != nil || n != 33 {
		t.Errorf("%d series of 40 catalogs, %v", n, err)
	}
	if err := testutil.GatherAndCompare(m.Gather(), strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}

// What is now can't be asked for: the counters are there all the same.
func TestScrapeWithoutAnAnswer(t *testing.T) {
	m := metrics.New(slog.New(slog.DiscardHandler))
	m.Watch(func(context.Context) (metrics.Now, error) { return metrics.Now{}, errors.New("closing") })
	m.Job("failed", "select", time.Second)
	if n, err := testutil.GatherAndCount(m.Gather(), "firn_jobs_total", "firn_tasks_pending"); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
}
