package shuffle

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/failpoint"
)

// keptBytes bounds the small outputs that a store keeps in memory.
const keptBytes = 16 << 20

// Store holds the shuffle output of an executor's attempts: in files of its
// directory, and what is small in memory. It is safe for concurrent use.
type Store struct {
	root string
	// quota bounds used; 0 for no bound.
	quota int64

	mu sync.Mutex
	// begun is closed and replaced when an attempt begins to write.
	begun chan struct{}
	// jobs are the attempts that are written or complete, by job.
	jobs map[string]map[Attempt]*stored
	// kept is the bytes that are in memory, used those that are in files.
	kept, used int64
	// meter is told of what is written; nil for nobody.
	meter Meter
}

// Meter counts what a store writes. It is safe for concurrent use.
type Meter interface {
	// ShuffleWritten is told of bytes that are about to be written to a file.
	ShuffleWritten(n int64)
	// ShuffleRefused is told of a write that the quota refused.
	ShuffleRefused()
	// Stream is told of each Flight stream that ended.
	Stream(direction string, err error)
}

// Usage is what a store holds.
type Usage struct {
	// Disk and Memory are in bytes; Limit bounds Disk, 0 for no bound.
	Disk, Memory, Limit int64
}

// Usage says what is held now.
func (s *Store) Usage() Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Usage{Disk: s.used, Memory: s.kept, Limit: s.quota}
}

// SetMeter has a meter count. It is called before anything is written.
func (s *Store) SetMeter(m Meter) { s.meter = m }

// stored is the output of one attempt. It doesn't change any more once it is
// complete.
type stored struct {
	complete bool
	// memory has the outputs that are kept in memory, bytes their sum. The others
	// are files of disk bytes.
	memory      map[int][]byte
	bytes, disk int64
	// live is set if the outputs are read while they are written.
	live *live
}

// NewStore uses dir/shuffle, which is made when something is written. What is
// there of an earlier store isn't seen: see Clear. quota bounds the bytes of its
// files; 0 leaves it to the disk.
func NewStore(dir string, quota int64) *Store {
	return &Store{root: filepath.Join(dir, "shuffle"), quota: quota, begun: make(chan struct{}), jobs: map[string]map[Attempt]*stored{}}
}

// Jobs lists the jobs and uploads of which there is data.
func (s *Store) Jobs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.jobs))
}

// Clear removes everything: what an earlier incarnation of the executor left
// behind is of no use, as the scheduler has counted it as lost.
func (s *Store) Clear() error {
	s.mu.Lock()
	for _, job := range s.jobs {
		for _, st := range job {
			st.live.end(errGone)
		}
	}
	s.jobs, s.kept, s.used = map[string]map[Attempt]*stored{}, 0, 0
	s.mu.Unlock()
	if err := os.RemoveAll(s.root); err != nil {
		return diskError("remove", s.root, err)
	}
	return nil
}

// Attempt names the output of one task attempt.
type Attempt struct {
	Job         string
	Stage, Task int
	ID          string
}

// validPart says whether an id may be a path element: letters, digits, dots,
// dashes and underscores, not starting with a dot.
func validPart(s string) bool {
	if s == "" || len(s) > 128 || s[0] == '.' {
		return false
	}
	for _, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return true
}

func (a Attempt) valid() bool {
	return validPart(a.Job) && validPart(a.ID) && a.Stage >= 0 && a.Task >= 0
}

// String names the attempt in messages.
func (a Attempt) String() string {
	return fmt.Sprintf("job %q stage %d task %d attempt %q", a.Job, a.Stage, a.Task, a.ID)
}

func (s *Store) jobDir(job string) string { return filepath.Join(s.root, job) }

// dirs gives the attempt's directory, and the hidden one that it is written
// under. Both lie in the job's: making and removing a directory for each stage and
// task would take longer than writing a file.
func (s *Store) dirs(a Attempt) (final, hidden string) {
	name := strconv.Itoa(a.Stage) + "." + strconv.Itoa(a.Task) + "." + a.ID
	return filepath.Join(s.jobDir(a.Job), name), filepath.Join(s.jobDir(a.Job), "."+name)
}

func outputName(output int) string { return strconv.Itoa(output) + ".arrow" }

// begin takes note of an attempt that is about to be written. It must be new: two
// writers of one attempt would mix.
func (s *Store) begin(a Attempt, l *live) (*stored, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jobs[a.Job][a] != nil {
		return nil, diskError("create", s.jobDir(a.Job), fmt.Errorf("%s: %w", a, fs.ErrExist))
	}
	if s.jobs[a.Job] == nil {
		s.jobs[a.Job] = map[Attempt]*stored{}
	}
	st := &stored{memory: map[int][]byte{}, live: l}
	s.jobs[a.Job][a] = st
	close(s.begun)
	s.begun = make(chan struct{})
	return st, nil
}

// keep says whether there is room in memory for an output of an attempt that is
// written, and takes it.
func (s *Store) keep(st *stored, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept+n > keptBytes {
		return false
	}
	s.kept += n
	st.bytes += n
	return true
}

// errQuota is why nothing more is written below a directory that has room.
var errQuota = errors.New("the executor's --shuffle-disk is used up")

// charge counts bytes that are about to be written to a file of an attempt, unless
// that would be more than the quota.
func (s *Store) charge(st *stored, n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.quota > 0 && s.used+n > s.quota {
		if s.meter != nil {
			s.meter.ShuffleRefused()
		}
		return fmt.Errorf("%w: %d of %d bytes hold output of %d jobs and uploads, and %d more are needed", errQuota, s.used, s.quota, len(s.jobs), n)
	}
	s.used += n
	st.disk += n
	if s.meter != nil {
		s.meter.ShuffleWritten(n)
	}
	return nil
}

// giveBack no longer counts an attempt's output. The caller holds the lock.
func (s *Store) giveBack(st *stored) {
	s.kept -= st.bytes
	s.used -= st.disk
}

// end makes an attempt's output readable, or forgets it. An attempt that was
// freed while it was written stays away.
func (s *Store) end(a Attempt, st *stored, complete bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	freed := s.jobs[a.Job][a] != st
	if complete && !freed {
		st.complete = true
		st.live.end(nil)
		return nil
	}
	st.live.end(errGone)
	s.giveBack(st)
	if !freed {
		s.forget(a)
	}
	if complete {
		return diskError("create", s.jobDir(a.Job), fmt.Errorf("%s was freed: %w", a, fs.ErrNotExist))
	}
	return nil
}

// forget drops an attempt. The caller holds the lock.
func (s *Store) forget(a Attempt) {
	delete(s.jobs[a.Job], a)
	if len(s.jobs[a.Job]) == 0 {
		delete(s.jobs, a.Job)
	}
}

// Free removes the shuffle data of some stages of a job, or of all of it when
// none is named. What is being read stays readable until it is closed. An
// unknown job is no error.
func (s *Store) Free(job string, stages ...int) error {
	if !validPart(job) {
		return fmt.Errorf("free shuffle data: %q isn't a job's id", job)
	}
	var dirs []string
	if len(stages) == 0 {
		dirs = []string{s.jobDir(job)}
	}
	s.mu.Lock()
	for a, st := range s.jobs[job] {
		if len(stages) > 0 {
			if !slices.Contains(stages, a.Stage) {
				continue
			}
			final, hidden := s.dirs(a)
			dirs = append(dirs, final, hidden)
		}
		if st.complete {
			s.giveBack(st)
		}
		st.live.end(errGone)
		s.forget(a)
	}
	s.mu.Unlock()
	var errs []error
	for _, dir := range dirs {
		if err := removeAll(dir); err != nil {
			errs = append(errs, diskError("remove", dir, err))
		}
	}
	return errors.Join(errs...)
}

// removeAll also copes with an attempt that is just making its directory.
func removeAll(dir string) error {
	var err error
	for range 3 {
		if err = os.RemoveAll(dir); !errors.Is(err, syscall.ENOTEMPTY) {
			return err
		}
	}
	return err
}

// get gives the attempt's output, nil unless it was committed.
func (s *Store) get(a Attempt) *stored {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.jobs[a.Job][a]; st != nil && st.complete {
		return st
	}
	return nil
}

// file is an open output. It reads batches in any order.
type file struct {
	name  string
	close func() error
	*ipc.FileReader
}

// open opens one output of an attempt. The error is fs.ErrNotExist when it isn't
// there.
func (s *Store) open(a Attempt, output int) (*file, error) {
	st := s.get(a)
	if st == nil || output < 0 {
		return nil, fmt.Errorf("%s output %d: %w", a, output, fs.ErrNotExist)
	}
	final, _ := s.dirs(a)
	name := filepath.Join(final, outputName(output))
	var src ipc.ReadAtSeeker
	closing := func() error { return nil }
	if raw, ok := st.memory[output]; ok {
		src = bytes.NewReader(raw)
	} else {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		src, closing = f, f.Close
	}
	r, err := ipc.NewFileReader(src)
	if err != nil {
		return nil, errors.Join(diskError("read", name, err), closing())
	}
	return &file{name: name, close: closing, FileReader: r}, nil
}

func (f *file) batch(i int) (arrow.RecordBatch, error) {
	failpoint.Slow()
	b, err := f.RecordBatchAt(i)
	if err != nil {
		return nil, diskError("read", f.name, err)
	}
	return b, nil
}

// Close closes the file.
func (f *file) Close() error { return errors.Join(f.FileReader.Close(), f.close()) }

// diskError makes an error of the file system one for a person. A full disk, or a
// quota that is used up, has a code of its own.
func diskError(op, path string, err error) error {
	e := &commit.Error{
		Code: commit.CodeShuffleIO, Op: op + " shuffle file", Object: path, Cause: err,
		Hint: "Check the disk that holds the executor's --dir.",
	}
	switch {
	case errors.Is(err, errQuota):
		e.Code, e.Hint = commit.CodeShuffleFull, "Raise --shuffle-disk, add executors, or run fewer large jobs at a time; a job's shuffle data goes when it ends."
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e.Code, e.Hint = commit.CodeShuffleFull, "Free space under the executor's --dir, or give it a larger disk."
	}
	return e
}
