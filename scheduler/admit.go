package scheduler

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/eventlog"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/journal"
)

// defaultNamespace is the namespace of keys while there's one principal.
const defaultNamespace = "default"

// maxKey bounds an idempotency key: it is stored with the commit.
const maxKey = 512

// checkText refuses a request with text that isn't UTF-8, which doors of this process
// can hand over: the record of its job couldn't be read back, nor any list that has it.
func checkText(r *firnpb.ExecuteRequest) error {
	if _, err := proto.Marshal(r); err != nil {
		return badRequest("run statement", err)
	}
	return nil
}

// fingerprint identifies what a key was submitted with.
func fingerprint(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// submit admits a job under its key. The answer is the status of the job that
// stands for the key: a new one, the one that runs, or the one that has
// committed.
//
// Submissions of one key are admitted one at a time, so that two of them that
// come at once can't both find nothing.
func (s *Scheduler) submit(ctx context.Context, sub submission) (*firnpb.JobStatus, error) {
	if len(sub.key) > maxKey {
		return nil, &commit.Error{
			Code: commit.CodeBadRequest, Op: "admit statement", Cause: fmt.Errorf("the idempotency key has %d bytes; at most %d are allowed", len(sub.key), maxKey),
			Hint: "Use a shorter key.",
		}
	}
	unlock, err := s.keys.lock(ctx, sub.namespace+"\x00"+sub.key)
	if err != nil {
		return nil, err
	}
	defer unlock()

	var running *job
	closing := false
	if err := s.loop.call(ctx, func() {
		closing = s.state.closing
		running = s.state.byKey[sub.namespace+"\x00"+sub.key]
		if running == nil && sub.mode == plan.ModeCached && sub.caches == nil {
			if c := s.state.cached[sub.fingerprint]; c != nil && c.isPublished() {
				c.expires = time.Now().Add(s.cfg.ResultTTL)
				c.partitions = partitionsOf(s.sign(s.locations(c, c.graph.Accepted()), c.expires))
				running = c
			}
		}
	}); err != nil {
		return nil, err
	}
	if closing && running == nil {
		return nil, errClosing()
	}
	if running != nil {
		if running.fingerprint != sub.fingerprint {
			return nil, errKeyReused(sub.key, running.id)
		}
		return s.view(ctx, running)
	}

	earlier, err := s.journal.JobByKey(ctx, sub.namespace, sub.key)
	found := err == nil
	if err != nil && !errors.Is(err, journal.ErrNotFound) {
		return nil, err
	}
	if found && earlier.Fingerprint != sub.fingerprint {
		return nil, errKeyReused(sub.key, earlier.ID)
	}
	if found && earlier.Commit == commit.CommitCommitted {
		if st, err := recorded(earlier); err == nil && st.GetReport() != nil {
			return deduplicated(st), nil
		}
		// The process ended between the commit and the record of the job's
		// end: the table has the token.
	}
	j := newJob(sub, time.Now())
	j.again = found
	switch {
	case sub.caches != nil:
		return s.beginFrame(ctx, j, earlier, found)
	case j.external == nil:
		return s.beginNew(ctx, j)
	}
	var st *firnpb.JobStatus
	err = s.admitWrite(ctx, j, func() error {
		st, err = s.beginNew(ctx, j)
		return err
	})
	return st, err
}

// letIn promises room among those that wait to be planned. The caller says when it has
// entered.
func (s *Scheduler) letIn(op string) (entered func(), err error) {
	entered, ok := s.line.Admit()
	if ok {
		return entered, nil
	}
	return nil, &commit.Error{
		Code: commit.CodeQueueFull, Op: op,
		Cause: fmt.Errorf("%d statements wait to be planned, and no more may (%d are planned at a time)", s.line.Most(), s.line.Places()),
		Tried: "nothing was run",
		Hint:  "Send it again later, with the same idempotency key. `firn job list --state queued` shows who waits; jobs.max_queued in the scheduler's file is how many may.",
	}
}

// beginNew begins a job that a client asks for: as long as there is room, and not a bit
// of it is recorded when there is none.
func (s *Scheduler) beginNew(ctx context.Context, j *job) (*firnpb.JobStatus, error) {
	entered, err := s.letIn("admit statement")
	if err != nil {
		return nil, err
	}
	defer entered()
	return s.begin(ctx, j)
}

// begin records a new job and starts to plan it.
func (s *Scheduler) begin(ctx context.Context, j *job) (*firnpb.JobStatus, error) {
	if j.target.Name != "" {
		j.table = j.target.String()
	}
	r := s.record(j)
	var err error
	if r.Submission, err = submissionOf(j); err != nil {
		return nil, err
	}
	// A client that leaves meanwhile doesn't stop the record: a job that is on record
	// and not here would come up at the next start, beside another one of its key.
	if err := s.scribe.record(context.WithoutCancel(ctx), journal.Batch{Jobs: []journal.Job{r}}); err != nil {
		return nil, err
	}
	var st *firnpb.JobStatus
	err = s.loop.call(context.WithoutCancel(ctx), func() {
		s.state.jobs[j.id] = j
		s.state.byKey[j.keyID()] = j
		s.noteJob(j, eventlog.JobSubmitted)
		switch {
		case s.state.closing:
			s.endEarly(j, "failed", errClosing())
		case j.unwanted:
			s.endEarly(j, graph.Cancelled, nil)
		default:
			s.startPlanning(j)
		}
		st = s.status(j)
	})
	return st, err
}

func errKeyReused(key, job string) error {
	return &commit.Error{
		Code: commit.CodeKeyReused, Op: "admit statement", Object: key,
		Cause: fmt.Errorf("the idempotency key belongs to job %s, which is another statement or has another session", job),
		Tried: "nothing was run",
		Hint:  "Use a fresh key for another statement; use the old key only to repeat the statement it was first sent with.",
	}
}

// keyLocks gives one holder at a time to each key.
type keyLocks struct {
	mu   sync.Mutex
	held map[string]chan struct{}
}

func (k *keyLocks) lock(ctx context.Context, key string) (unlock func(), err error) {
	for {
		k.mu.Lock()
		free := k.held[key]
		if free == nil {
			free = make(chan struct{})
			if k.held == nil {
				k.held = map[string]chan struct{}{}
			}
			k.held[key] = free
			k.mu.Unlock()
			return func() {
				k.mu.Lock()
				delete(k.held, key)
				k.mu.Unlock()
				close(free)
			}, nil
		}
		k.mu.Unlock()
		select {
		case <-free:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
