package metrics

import (
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/firn-project/firn/commit"
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
	registry *prometheus.Registry
	gauges   *gauges

	jobs         *prometheus.CounterVec
	jobSeconds   *prometheus.HistogramVec
	tasks        *prometheus.CounterVec
	taskSeconds  *prometheus.HistogramVec
	commits      *prometheus.CounterVec
	attempts     *prometheus.HistogramVec
	conflicts    *prometheus.CounterVec
	commitTime   *prometheus.HistogramVec
	queueWait    *prometheus.HistogramVec
	filesWritten *prometheus.CounterVec
	bytesWritten *prometheus.CounterVec
	rowsWritten  *prometheus.CounterVec
}

// seconds are the bounds of durations: from a small statement to a long job.
var seconds = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200}

// New makes the metrics of a scheduler; nothing is counted yet. What can't be read
// at a scrape is logged.
func New(log *slog.Logger) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), gauges: &gauges{log: log}}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		m.registry.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
		m.registry.MustRegister(h)
		return h
	}
	m.jobs = counter("firn_jobs_total", "Jobs that ended.", "state", "operation")
	m.jobSeconds = histogram("firn_job_duration_seconds", "From a job's submission to its end.", seconds, "operation", "outcome")
	m.tasks = counter("firn_tasks_total", "Attempts of tasks that ended.", "outcome")
	m.taskSeconds = histogram("firn_task_duration_seconds", "How long attempts of tasks ran on their executors.", seconds, "outcome")
	m.commits = counter("firn_commits_total", "Commits that ended, and those whose outcome was told as unknown.", "format", "operation", "outcome")
	m.attempts = histogram("firn_commit_attempts", "Requests that were sent for a commit.", []float64{0, 1, 2, 3, 5, 8, 13, 21}, "format", "outcome")
	m.conflicts = counter("firn_commit_conflicts_total", "Requests of commits that lost to another writer.", "format")
	m.commitTime = histogram("firn_commit_duration_seconds", "From the first manifest that was read to the commit's end.", seconds, "format", "outcome")
	m.queueWait = histogram("firn_commit_queue_wait_seconds", "How long sealed commits waited for their table.", seconds, "format", "outcome")
	m.filesWritten = counter("firn_files_written_total", "Data files of commits that landed.", "format")
	m.bytesWritten = counter("firn_bytes_written_total", "Bytes of data files of commits that landed.", "format")
	m.rowsWritten = counter("firn_rows_written_total", "Rows of commits that landed.", "format")
	m.registry.MustRegister(m.gauges, buildInfo(), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func buildInfo() prometheus.Collector {
	version, revision, goversion := "", "", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		version, goversion = info.Main.Version, info.GoVersion
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "firn_build_info", Help: "The build that runs; always 1.",
		ConstLabels: prometheus.Labels{"version": version, "revision": revision, "goversion": goversion},
	})
	g.Set(1)
	return g
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
		m.conflicts.WithLabelValues(r.Format).Add(float64(r.Conflicts))
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

// Handler answers scrapes.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Gather is what a scrape gives, for tests.
func (m *Metrics) Gather() prometheus.Gatherer { return m.registry }

// Watch says where a scrape finds what is now. It is set once, before the first
// scrape.
func (m *Metrics) Watch(now func(context.Context) (Now, error)) { m.gauges.now = now }
