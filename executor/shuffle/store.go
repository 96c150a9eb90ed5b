package shuffle

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/firn-project/firn/commit"
)

// Store is the directory that holds an executor's shuffle files. It is safe for
// concurrent use.
type Store struct{ root string }

// NewStore uses dir/shuffle, which is made when something is written.
func NewStore(dir string) *Store { return &Store{root: filepath.Join(dir, "shuffle")} }

// Clear removes everything: what an earlier incarnation of the executor left
// behind is of no use, as the scheduler has counted it as lost.
func (s *Store) Clear() error {
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

// stagePrefix begins the names of the directories of a stage's attempts.
func stagePrefix(stage int) string { return strconv.Itoa(stage) + "." }

// dirs gives the attempt's directory, and the hidden one that it is written
// under. Both lie in the job's: making and removing a directory for each stage and
// task would take longer than writing a file manifest.
func (s *Store) dirs(a Attempt) (final, hidden string) {
	name := stagePrefix(a.Stage) + strconv.Itoa(a.Task) + "." + a.ID
	return filepath.Join(s.jobDir(a.Job), name), filepath.Join(s.jobDir(a.Job), "."+name)
}

func outputName(output int) string { return strconv.Itoa(output) + ".arrow" }

// Free removes the shuffle data of some stages of a job, or of all of it when
// none is named. What is being read stays readable until it is closed. An
// unknown job is no error.
func (s *Store) Free(job string, stages ...int) error {
	if !validPart(job) {
		return fmt.Errorf("free shuffle data: %q isn't a job's id", job)
	}
	dirs := []string{s.jobDir(job)}
	if len(stages) > 0 {
		var err error
		if dirs, err = s.stageDirs(job, stages); err != nil {
			return err
		}
	}
	var errs []error
	for _, dir := range dirs {
		if err := removeAll(dir); err != nil {
			errs = append(errs, diskError("remove", dir, err))
		}
	}
	return errors.Join(errs...)
}

// stageDirs lists the directories of what is there of some stages of a job, also
// of attempts that are still written.
func (s *Store) stageDirs(job string, stages []int) ([]string, error) {
	all, err := os.ReadDir(s.jobDir(job))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, diskError("list", s.jobDir(job), err)
	}
	var dirs []string
	for _, d := range all {
		name := strings.TrimPrefix(d.Name(), ".")
		if slices.ContainsFunc(stages, func(n int) bool { return strings.HasPrefix(name, stagePrefix(n)) }) {
			dirs = append(dirs, filepath.Join(s.jobDir(job), d.Name()))
		}
	}
	return dirs, nil
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

// has says whether the attempt's output was committed.
func (s *Store) has(a Attempt) bool {
	final, _ := s.dirs(a)
	_, err := os.Stat(final)
	return err == nil
}

// file is an open output. It reads batches in any order.
type file struct {
	f *os.File
	*ipc.FileReader
}

// open opens one output of an attempt. The error is fs.ErrNotExist when it isn't
// there.
func (s *Store) open(a Attempt, output int) (*file, error) {
	if !a.valid() || output < 0 {
		return nil, fmt.Errorf("%s output %d: %w", a, output, fs.ErrNotExist)
	}
	final, _ := s.dirs(a)
	f, err := os.Open(filepath.Join(final, outputName(output)))
	if err != nil {
		return nil, err
	}
	r, err := ipc.NewFileReader(f)
	if err != nil {
		return nil, errors.Join(diskError("read", f.Name(), err), f.Close())
	}
	return &file{f: f, FileReader: r}, nil
}

func (f *file) batch(i int) (arrow.RecordBatch, error) {
	b, err := f.RecordBatchAt(i)
	if err != nil {
		return nil, diskError("read", f.f.Name(), err)
	}
	return b, nil
}

// Close closes the file.
func (f *file) Close() error { return errors.Join(f.FileReader.Close(), f.f.Close()) }

// diskError makes an error of the file system one for a person. A full disk has
// a code of its own.
func diskError(op, path string, err error) error {
	e := &commit.Error{
		Code: commit.CodeShuffleIO, Op: op + " shuffle file", Object: path, Cause: err,
		Hint: "Check the disk that holds the executor's --dir.",
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		e.Code, e.Hint = commit.CodeShuffleFull, "Free space under the executor's --dir, or give it a larger disk."
	}
	return e
}
