package metrics

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/meter"
)

// Outcomes of attempts of tasks.
const (
	TaskSucceeded = "succeeded"
	TaskFailed    = "failed"
	TaskCancelled = "cancelled"
	// TaskLost is an attempt whose executor was lost, or never got it.
	TaskLost = "lost"
)

// Metrics are those of one scheduler. All methods may be called concurrently.
type Metrics struct {
	set *meter.Set

	jobs           *prometheus.CounterVec
	jobSeconds     *prometheus.HistogramVec
	tasks          *prometheus.CounterVec
	taskSeconds    *prometheus.HistogramVec
	commits        *prometheus.CounterVec
	attempts       *prometheus.HistogramVec
	conflicts      *prometheus.CounterVec
	commitTime     *prometheus.HistogramVec
	queueWait      *prometheus.HistogramVec
	manifests      prometheus.Counter
	duplicates     prometheus.Counter
	filesWritten   *prometheus.CounterVec
	bytesWritten   *prometheus.CounterVec
	rowsWritten    *prometheus.CounterVec
	catalogCalls   *prometheus.CounterVec
	catalogSeconds *prometheus.HistogramVec

	mu sync.Mutex
	// catalogs are the names that have a label of their own.
	catalogs map[string]bool
}

// New makes the metrics of a scheduler; nothing is counted yet. What can't be read
// at a scrape is logged.
func New(log *slog.Logger) *Metrics {
	s := meter.New(log)
	m := &Metrics{set: s, catalogs: map[string]bool{}}
	m.jobs = s.Counter("firn_jobs_total", "Jobs that ended.", "state", "operation")
	m.jobSeconds = s.Histogram("firn_job_duration_seconds", "From a job's submission to its end.", meter.Seconds, "operation", "outcome")
	m.tasks = s.Counter("firn_tasks_total", "Attempts of tasks that ended.", "outcome")
	m.taskSeconds = s.Histogram("firn_task_duration_seconds", "How long attempts of tasks ran on their executors.", meter.Seconds, "outcome")
	m.commits = s.Counter("firn_commits_total", "Commits that ended, and those whose outcome was told as unknown.", "format", "operation", "outcome")
	m.attempts = s.Histogram("firn_commit_attempts", "Requests that were sent for a commit.", []float64{0, 1, 2, 3, 5, 8, 13, 21}, "format", "outcome")
	m.conflicts = s.Counter("firn_commit_conflicts_total", "Requests that lost their seat to another writer (kind ref_moved), and commits that were refused for what others did.", "format", "kind")
	m.commitTime = s.Histogram("firn_commit_duration_seconds", "From the first manifest that was read to the commit's end.", meter.Seconds, "format", "outcome")
	m.queueWait = s.Histogram("firn_commit_queue_wait_seconds", "How long sealed commits waited for their table.", meter.Seconds, "format", "outcome")
	m.manifests = s.Counter("firn_manifests_received_total", "File manifests that roots read.").WithLabelValues()
	m.duplicates = s.Counter("firn_manifest_duplicates_total", "Successes with data files that didn't count: their task had one already, or their attempt was given up.").WithLabelValues()
	m.filesWritten = s.Counter("firn_files_written_total", "Data files of commits that landed.", "format")
	m.bytesWritten = s.Counter("firn_bytes_written_total", "Bytes of data files of commits that landed.", "format")
	m.rowsWritten = s.Counter("firn_rows_written_total", "Rows of commits that landed.", "format")
	m.catalogCalls = s.Counter("firn_catalog_requests_total", "Requests to catalogs, each try of its own.", "catalog", "method", "code")
	m.catalogSeconds = s.Histogram("firn_catalog_request_duration_seconds", "How long requests to catalogs took, until the head of the answer.", meter.Seconds, "catalog", "method", "code")
	m.gauges()
	return m
}

// Job counts a job that ended. operation is the kind of its statement.
func (m *Metrics) Job(state, operation string, took time.Duration) {
	m.jobs.WithLabelValues(state, operation).Inc()
	m.jobSeconds.WithLabelValues(operation, state).Observe(took.Seconds())
}

// Task counts an attempt that ended; took is 0 when it isn't known.
func (m *Metrics) Task(outcome string, took time.Duration) {
	m.tasks.WithLabelValues(outcome).Inc()
	if took > 0 {
		m.taskSeconds.WithLabelValues(outcome).Observe(took.Seconds())
	}
}

// Commit counts a commit's end; err is its root's.
func (m *Metrics) Commit(r commit.Report, err error, took, queued time.Duration) {
	outcome := outcomeOf(r, err)
	m.commits.WithLabelValues(r.Format, string(r.Operation), outcome).Inc()
	m.attempts.WithLabelValues(r.Format, outcome).Observe(float64(r.Attempts))
	m.commitTime.WithLabelValues(r.Format, outcome).Observe(took.Seconds())
	if queued > 0 {
		m.queueWait.WithLabelValues(r.Format, outcome).Observe(queued.Seconds())
	}
	if r.Conflicts > 0 {
		m.conflicts.WithLabelValues(r.Format, string(commit.ConflictRefMoved)).Add(float64(r.Conflicts))
	}
	if kind := commit.ConflictOf(err); kind != "" && r.State == commit.CommitRefused {
		m.conflicts.WithLabelValues(r.Format, string(kind)).Inc()
	}
	if r.State == commit.CommitCommitted && !r.Deduplicated {
		m.filesWritten.WithLabelValues(r.Format).Add(float64(r.Files))
		m.bytesWritten.WithLabelValues(r.Format).Add(float64(r.Bytes))
		m.rowsWritten.WithLabelValues(r.Format).Add(float64(r.Rows))
	}
}

// outcomeOf is one of committed, conflict, refused, unknown and error: nothing was
// committed for a reason outside of the table.
func outcomeOf(r commit.Report, err error) string {
	switch {
	case r.State == commit.CommitCommitted || r.State == commit.CommitUnknown:
		return string(r.State)
	case r.State == commit.CommitRefused && commit.KindOf(err) == commit.KindConflict:
		return "conflict"
	case r.State == commit.CommitRefused:
		return string(r.State)
	default:
		return "error"
	}
}

// Manifest counts a file manifest that a root has read.
func (m *Metrics) Manifest() { m.manifests.Inc() }

// Duplicate counts a success with data files that didn't count.
func (m *Metrics) Duplicate() { m.duplicates.Inc() }

const (
	// maxCatalogs is how many catalogs have a label of their own: statements may make
	// and drop them.
	maxCatalogs = 32
	// otherCatalogs is the label of all others.
	otherCatalogs = "other"
)

// Catalog counts a request to a catalog. method and code have few values: see
// catalog.Call.
func (m *Metrics) Catalog(name, method, code string, took time.Duration) {
	m.mu.Lock()
	if !m.catalogs[name] {
		if len(m.catalogs) < maxCatalogs {
			m.catalogs[name] = true
		} else {
			name = otherCatalogs
		}
	}
	m.mu.Unlock()
	m.catalogCalls.WithLabelValues(name, method, code).Inc()
	m.catalogSeconds.WithLabelValues(name, method, code).Observe(took.Seconds())
}

// Handler answers scrapes.
func (m *Metrics) Handler() http.Handler { return m.set.Handler() }

// Gather is what a scrape gives, for tests.
func (m *Metrics) Gather() prometheus.Gatherer { return m.set.Gatherer() }

// Infos lists what a scrape may give.
func (m *Metrics) Infos() []meter.Info { return m.set.Infos() }

// Watch says where a scrape finds what is now. It is set once, before the first
// scrape.
func (m *Metrics) Watch(now func(context.Context) (Now, error)) {
	m.set.Watch(func(ctx context.Context, g meter.Gauge) error {
		n, err := now(ctx)
		if err == nil {
			n.tell(g)
		}
		return err
	})
}
