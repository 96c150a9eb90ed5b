package binder

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// process is one helper. It serves one caller at a time.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	errs   *tail
	done   chan struct{}
	exit   error
	killed sync.Once
	// ours: it was killed from here.
	ours bool
}

// startProcess starts a helper that gets nothing of this process: no environment,
// no directory with anything in it, no open file but the pipes.
func startProcess(command []string, dir string) (*process, error) {
	if len(command) == 0 {
		return nil, errors.New("there is no command for helpers")
	}
	h := &process{cmd: exec.Command(command[0], command[1:]...), errs: &tail{}, done: make(chan struct{})}
	h.cmd.Args[0] = os.Args[0] // the name by which the program knows itself
	h.cmd.Env, h.cmd.Dir, h.cmd.Stderr = []string{}, dir, h.errs
	var err error
	if h.in, err = h.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	// Not StdoutPipe: Wait would close it while it is read.
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	h.cmd.Stdout = w
	if err := h.cmd.Start(); err != nil {
		return nil, errors.Join(err, r.Close(), w.Close())
	}
	_ = w.Close() // the helper has its own
	h.out = bufio.NewReaderSize(r, 64<<10)
	go func() {
		h.exit = h.cmd.Wait()
		_ = r.Close()
		close(h.done)
	}()
	return h, nil
}

// ended says whether the process has ended.
func (h *process) ended() bool {
	select {
	case <-h.done:
		return true
	default:
		return false
	}
}

var errHung = errors.New("it gave no answer in time and was killed")

// ask sends a request and waits for its answer. After an error the process is of
// no use.
func (h *process) ask(ctx context.Context, limit time.Duration, kind byte, content []byte) (got byte, answer []byte, err error) {
	type result struct {
		kind    byte
		content []byte
		err     error
	}
	results := make(chan result, 1)
	go func() {
		if err := writeFrame(h.in, kind, content); err != nil {
			results <- result{err: err}
			return
		}
		k, c, err := readFrame(h.out)
		results <- result{k, c, err}
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case r := <-results:
		if r.err != nil {
			// Its end says more than that of its pipe.
			select {
			case <-h.done:
			case <-timer.C:
			}
		}
		return r.kind, r.content, r.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		err = fmt.Errorf("%w (%s)", errHung, limit)
	}
	h.kill()
	<-results // its pipes are closed
	return 0, nil, err
}

// kill ends the process and waits for its end.
func (h *process) kill() {
	h.killed.Do(func() {
		_ = h.in.Close()
		h.ours = !h.ended()
		_ = h.cmd.Process.Kill() // it may have ended
		<-h.done
	})
}

// why says why the process ended, if it did by itself.
func (h *process) why(err error) error {
	if h.ours || h.exit == nil {
		return err
	}
	return fmt.Errorf("the process crashed: %w", h.exit)
}

// said is the end of what the process wrote to stderr.
func (h *process) said() string { return h.errs.String() }

// tail keeps the end of what is written to it. It is safe for concurrent use.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	const most = 4 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - most; over > 0 {
		t.buf = append([]byte(nil), t.buf[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.buf))
}
