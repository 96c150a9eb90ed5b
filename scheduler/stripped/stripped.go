package stripped

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/scheduler/journal"
)

// Journal keeps the marks; journal.Journal has more.
type Journal interface {
	Strip(ctx context.Context, s journal.Stripped) error
	Unstrip(ctx context.Context, tableUUID string) error
	Stripped(ctx context.Context) ([]journal.Stripped, error)
}

// Tables are the tables that are marked. It is safe for concurrent use.
type Tables struct {
	journal Journal
	log     *slog.Logger

	mu     sync.Mutex
	marked map[string]*mark // by table UUID
}

type mark struct {
	journal.Stripped
	unsaved bool
}

// Load reads the marks.
func Load(ctx context.Context, j Journal, log *slog.Logger) (*Tables, error) {
	all, err := j.Stripped(ctx)
	if err != nil {
		return nil, err
	}
	t := &Tables{journal: j, log: log, marked: map[string]*mark{}}
	for _, s := range all {
		t.marked[s.TableUUID] = &mark{Stripped: s}
	}
	return t, nil
}

// Check is the error to refuse commits to a table with; nil when it takes them.
func (t *Tables) Check(tableUUID string) error {
	s, cause := t.why(tableUUID)
	if cause == nil {
		return nil
	}
	return &commit.Error{
		Code: commit.CodeTokensStripped, Op: "commit to", Object: s.Table.String(), Reason: commit.ReasonPermission, Cause: cause,
		Tried: "nothing was sent",
		Hint:  fmt.Sprintf("`firn catalog check %s` finds out whether it is the catalog; when that is repaired, `firn table allow-commits %s` lets commits through again.", s.Table.Catalog, s.Table),
	}
}

// Why says in half a sentence why nothing is committed to a table; empty when it
// takes commits.
func (t *Tables) Why(tableUUID string) string {
	if _, cause := t.why(tableUUID); cause != nil {
		return cause.Error()
	}
	return ""
}

func (t *Tables) why(tableUUID string) (s journal.Stripped, cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.marked[tableUUID]
	if m == nil {
		return s, nil
	}
	return m.Stripped, fmt.Errorf("the commit of job %s landed as snapshot %s without the token that was sent with it (found %s)",
		m.JobID, m.SnapshotID, m.At.UTC().Format(time.RFC3339))
}

// Found marks the table of a unit that landed without its token: commits that are
// asked for from now on are refused. Save makes the mark durable.
func (t *Tables) Found(u commit.Unit, snapshotID string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.marked[u.TableUUID]; known {
		return
	}
	t.marked[u.TableUUID] = &mark{
		Stripped: journal.Stripped{TableUUID: u.TableUUID, Table: u.Table, JobID: u.JobID, SnapshotID: snapshotID, At: time.Now()}, unsaved: true,
	}
	t.log.LogAttrs(context.Background(), slog.LevelError, "a commit landed without its token; nothing more is committed to the table", slog.String("table", u.Table.String()),
		slog.String("job_id", u.JobID), slog.String("snapshot_id", snapshotID))
}

// Save makes the mark of a table durable, if it has one. It comes before the
// outcome of any unit of the table is on record: if it fails, the next process
// finds the unit again that the mark comes from.
func (t *Tables) Save(ctx context.Context, tableUUID string) error {
	t.mu.Lock()
	m := t.marked[tableUUID]
	saved := m == nil || !m.unsaved
	t.mu.Unlock()
	if saved {
		return nil
	}
	if err := t.journal.Strip(ctx, m.Stripped); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	m.unsaved = false
	return nil
}

// Allow takes a table's mark away, if it has one.
func (t *Tables) Allow(ctx context.Context, tableUUID string) error {
	if err := t.journal.Unstrip(ctx, tableUUID); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.marked, tableUUID)
	return nil
}
