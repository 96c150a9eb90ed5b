package metrics

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/firn-project/firn/internal/meter"
)

// Metrics are those of one executor. All methods may be called concurrently.
type Metrics struct {
	set         *meter.Set
	tasks       *prometheus.CounterVec
	taskSeconds *prometheus.HistogramVec
	rowsRead    prometheus.Counter
	rowsWritten prometheus.Counter
	files       prometheus.Counter
	streams     *prometheus.CounterVec
	shuffle     prometheus.Counter
	overQuota   prometheus.Counter
	keys        *prometheus.CounterVec
}

// Now is how an executor is at one moment.
type Now struct {
	// Slots is how many tasks run at a time, Running how many run or wait for a slot.
	Slots, Running int
	// Unacknowledged are statuses that the scheduler hasn't acknowledged.
	Unacknowledged int
	// ShuffleDisk and ShuffleMemory are the bytes of shuffle data; DiskLimit is the
	// quota, 0 for none.
	ShuffleDisk, ShuffleMemory, DiskLimit int64
	// Reading and Uploading are the Flight streams that are open.
	Reading, Uploading int64
	// Spilled are the bytes below the slots' directories.
	Spilled int64
	// Registered: the scheduler knows the executor.
	Registered bool
}

const (
	slotsName      = "firn_executor_slots"
	runningName    = "firn_executor_tasks_running"
	unackedName    = "firn_executor_statuses_unacknowledged"
	diskName       = "firn_executor_shuffle_disk_bytes"
	limitName      = "firn_executor_shuffle_disk_limit_bytes"
	memoryName     = "firn_executor_shuffle_memory_bytes"
	openName       = "firn_executor_flight_streams"
	spillName      = "firn_executor_spill_bytes"
	registeredName = "firn_executor_registered"
)

// New makes the metrics of an executor; nothing is counted yet. What can't be read at
// a scrape is logged.
func New(log *slog.Logger) *Metrics {
	s := meter.New(log)
	m := &Metrics{set: s}
	m.tasks = s.Counter("firn_executor_tasks_total", "Attempts of tasks that ended here: succeeded, failed or cancelled.", "outcome")
	m.taskSeconds = s.Histogram("firn_executor_task_duration_seconds", "How long attempts of tasks ran here.", meter.Seconds, "outcome")
	m.rowsRead = s.Counter("firn_executor_rows_read_total", "Rows that came into attempts.").WithLabelValues()
	m.rowsWritten = s.Counter("firn_executor_rows_written_total", "Rows that attempts gave, to shuffle output or data files.").WithLabelValues()
	m.files = s.Counter("firn_executor_files_written_total", "Data files of attempts that succeeded here, whether or not they were accepted.").WithLabelValues()
	m.streams = s.Counter("firn_executor_flight_streams_total", "Flight streams that ended: read or upload, ok or error.", "direction", "outcome")
	m.shuffle = s.Counter("firn_executor_shuffle_written_bytes_total", "Bytes of shuffle output and uploads that were written to disk.").WithLabelValues()
	m.overQuota = s.Counter("firn_executor_shuffle_refused_total", "Writes of shuffle output that --shuffle-disk refused.").WithLabelValues()
	m.keys = s.Counter("firn_executor_store_keys_requests_total", "Requests to the scheduler for keys to an object store: ok or error.", "outcome")
	s.Gauge(slotsName, "Task slots.")
	s.Gauge(runningName, "Attempts that run or wait for a slot.")
	s.Gauge(unackedName, "Statuses of attempts that the scheduler hasn't acknowledged.")
	s.Gauge(diskName, "Bytes of shuffle output and uploads on disk.")
	s.Gauge(limitName, "Most bytes of shuffle output and uploads, as --shuffle-disk says; 0 for no limit.")
	s.Gauge(memoryName, "Bytes of small shuffle output in memory.")
	s.Gauge(openName, "Flight streams that are open.", "direction")
	s.Gauge(spillName, "Bytes on disk below the slots' directories: what queries spill, and parts of objects while they are read.")
	s.Gauge(registeredName, "1 while the scheduler knows the executor.")
	s.Gauges()
	return m
}

// Task counts an attempt that ended.
func (m *Metrics) Task(outcome string, took time.Duration, rowsIn, rowsOut int64, files int) {
	m.tasks.WithLabelValues(outcome).Inc()
	m.taskSeconds.WithLabelValues(outcome).Observe(took.Seconds())
	m.rowsRead.Add(float64(rowsIn))
	m.rowsWritten.Add(float64(rowsOut))
	m.files.Add(float64(files))
}

// Stream counts a Flight stream that ended.
func (m *Metrics) Stream(direction string, err error) {
	m.streams.WithLabelValues(direction, outcome(err)).Inc()
}

// ShuffleWritten counts bytes of shuffle output that were written to disk.
func (m *Metrics) ShuffleWritten(n int64) { m.shuffle.Add(float64(n)) }

// ShuffleRefused counts a write that the quota refused.
func (m *Metrics) ShuffleRefused() { m.overQuota.Inc() }

// StoreKeys counts a request for keys.
func (m *Metrics) StoreKeys(err error) { m.keys.WithLabelValues(outcome(err)).Inc() }

func outcome(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}

// Handler answers scrapes.
func (m *Metrics) Handler() http.Handler { return m.set.Handler() }

// Gather is what a scrape gives, for tests.
func (m *Metrics) Gather() prometheus.Gatherer { return m.set.Gatherer() }

// Infos lists what a scrape may give.
func (m *Metrics) Infos() []meter.Info { return m.set.Infos() }

// Watch says where a scrape finds what is now. It is set once, before the first
// scrape.
func (m *Metrics) Watch(now func() (Now, error)) {
	m.set.Watch(func(_ context.Context, g meter.Gauge) error {
		n, err := now()
		if err != nil {
			return err
		}
		g(slotsName, float64(n.Slots))
		g(runningName, float64(n.Running))
		g(unackedName, float64(n.Unacknowledged))
		g(diskName, float64(n.ShuffleDisk))
		g(limitName, float64(n.DiskLimit))
		g(memoryName, float64(n.ShuffleMemory))
		g(openName, float64(n.Reading), "read")
		g(openName, float64(n.Uploading), "upload")
		g(spillName, float64(n.Spilled))
		registered := 0.0
		if n.Registered {
			registered = 1
		}
		g(registeredName, registered)
		return nil
	})
}
