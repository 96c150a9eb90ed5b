package metrics

import "github.com/firn-project/firn/internal/meter"

// Now is how a scheduler is at one moment.
type Now struct {
	// Queued are the statements that wait to be planned, TasksPending the tasks that
	// wait for a slot.
	Queued, TasksPending int
	// Executors counts them by state.
	Executors map[string]int
	// QueueLength is how many sealed commits aren't through, Unknown how many have
	// an outcome that isn't known, Orphans how many data files of commits that ended
	// otherwise are kept; all by the table's format.
	QueueLength, Unknown, Orphans map[string]int64
	// Frames are the cached frames that are built, FrameBytes what they have.
	Frames     int
	FrameBytes int64
	// OpenWrites is how many writes of other engines are open.
	OpenWrites int
	// Leads says that nobody has taken the journal over.
	Leads bool
}

const (
	queuedName    = "firn_jobs_queued"
	pendingName   = "firn_tasks_pending"
	executorsName = "firn_executors"
	queueName     = "firn_commit_queue_length"
	unknownName   = "firn_commit_state_unknown"
	orphansName   = "firn_orphan_files"
	writesName    = "firn_open_writes"
	leaderName    = "firn_leader"
	framesName    = "firn_cached_frames"
	frameSizeName = "firn_cached_frame_bytes"
)

func (m *Metrics) gauges() {
	m.set.Gauge(queuedName, "Statements that wait to be planned.")
	m.set.Gauge(pendingName, "Tasks that wait for a slot.")
	m.set.Gauge(executorsName, "Executors that are known.", "state")
	m.set.Gauge(queueName, "Sealed commits that aren't through.", "format")
	m.set.Gauge(unknownName, "Commits whose outcome isn't known yet; nobody may resubmit them under another key.", "format")
	m.set.Gauge(orphansName, "Data files that are kept for commits which haven't landed: parked, or of an outcome that isn't known.", "format")
	m.set.Gauge(writesName, "Writes of other engines that are open.")
	m.set.Gauge(leaderName, "1 while this process leads; 0 once another one has taken its journal over.")
	m.set.Gauge(framesName, "Cached frames that are built.")
	m.set.Gauge(frameSizeName, "Bytes of cached frames, lost pieces included.")
	m.set.Gauges()
}

// tell gives the values. Formats and states without any are told as 0, so that an
// alert sees them end.
func (n Now) tell(g meter.Gauge) {
	g(queuedName, float64(n.Queued))
	g(pendingName, float64(n.TasksPending))
	for _, state := range []string{"ready", "draining", "drained", "returning", "passed_over"} {
		g(executorsName, float64(n.Executors[state]), state)
	}
	for name, byFormat := range map[string]map[string]int64{queueName: n.QueueLength, unknownName: n.Unknown, orphansName: n.Orphans} {
		for _, format := range []string{"iceberg", "delta"} {
			g(name, float64(byFormat[format]), format)
		}
	}
	g(writesName, float64(n.OpenWrites))
	leads := 0.0
	if n.Leads {
		leads = 1
	}
	g(leaderName, leads)
	g(framesName, float64(n.Frames))
	g(frameSizeName, float64(n.FrameBytes))
}
