package eventlog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	// suffix of the files' names.
	suffix = ".jsonl"
	// flushEvery is how long lines of a running job may wait. At flushBytes of all
	// jobs they are written at once, and at maxBytes the disk hangs: further lines
	// are dropped.
	flushEvery = time.Second
	flushBytes = 1 << 20
	maxBytes   = 16 << 20
)

// Log writes events. Noting one never waits for the disk: lines are gathered for
// each job and go out together, those of a small job in one write. A nil Log takes
// events and writes nothing.
type Log struct {
	dir    string
	logger *slog.Logger
	wake   chan struct{}
	done   chan struct{}

	mu      sync.Mutex
	waiting map[string]*bytes.Buffer
	bytes   int
	closed  bool
	// dropped counts lines.
	dropped int
}

// Open makes the directory and starts the writer. Close it.
func Open(dir string, logger *slog.Logger) (*Log, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	l := &Log{dir: dir, logger: logger, wake: make(chan struct{}, 1), done: make(chan struct{}), waiting: map[string]*bytes.Buffer{}}
	go l.run()
	return l, nil
}

// Note takes an event. It may be called from anywhere; the events of a job stay in
// the order of the calls.
func (l *Log) Note(e Event) {
	if l == nil {
		return
	}
	raw, err := json.Marshal(e)
	if err != nil {
		l.logger.Error("event not encoded", slog.String("job_id", e.Job), slog.Any("error", err))
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.bytes > maxBytes {
		l.dropped++
		return
	}
	b := l.waiting[e.Job]
	if b == nil {
		b = &bytes.Buffer{}
		l.waiting[e.Job] = b
	}
	b.Write(raw)
	b.WriteByte('\n')
	l.bytes += len(raw) + 1
	if e.Kind == JobEnded || l.bytes > flushBytes {
		l.kick()
	}
}

func (l *Log) kick() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *Log) run() {
	defer close(l.done)
	t := time.NewTicker(flushEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-l.wake:
		}
		l.mu.Lock()
		batch, closed, dropped := l.waiting, l.closed, l.dropped
		l.waiting, l.bytes, l.dropped = map[string]*bytes.Buffer{}, 0, 0
		l.mu.Unlock()
		if dropped > 0 {
			l.logger.Warn("events not logged", slog.Int("events", dropped))
		}
		for job, b := range batch {
			if err := l.write(job, b.Bytes()); err != nil {
				l.logger.Warn("events not logged", slog.String("job_id", job), slog.Any("error", err))
			}
		}
		if closed {
			return
		}
	}
}

// write appends to a job's file. Ids are made by the scheduler; anything else stays
// in the directory all the same.
func (l *Log) write(job string, lines []byte) error {
	f, err := os.OpenFile(filepath.Join(l.dir, filepath.Base(job)+suffix), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(lines)
	return errors.Join(err, f.Close())
}

// Prune removes the files that nothing was written to since a time.
func (l *Log) Prune(ctx context.Context, before time.Time) error {
	if l == nil {
		return nil
	}
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		info, err := e.Info()
		if ctx.Err() != nil || err != nil || !strings.HasSuffix(e.Name(), suffix) || !info.ModTime().Before(before) {
			continue
		}
		if err := os.Remove(filepath.Join(l.dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, ctx.Err())...)
}

// Close writes what waits. It may be called again.
func (l *Log) Close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.kick()
	<-l.done
}
