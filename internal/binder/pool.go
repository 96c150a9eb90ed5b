package binder

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/duckdb"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
)

// Config says how helpers are run.
type Config struct {
	// Command is the program and its arguments; it must end up in Main.
	Command []string
	// Size is how many helpers there are; 2 when zero.
	Size int
	// Timeout bounds one request; 30 s when zero. A helper that takes longer is
	// killed.
	Timeout time.Duration
	// Logger is told of helpers that had to be replaced.
	Logger *slog.Logger
}

// Pool parses and binds in helpers. It is safe for concurrent use, and closed by
// Close. It implements the sql package's TreeParser and, for queries that look at
// no files, its Binder.
type Pool struct {
	cfg Config
	dir string
	// lock says that the directory's process lives.
	lock *os.File
	// free has a place for each helper that may be used: one that runs, or nil for
	// one to be started.
	free chan *process
	stop context.CancelFunc
	life context.Context //nolint:containedctx // the life of the pool
	busy sync.WaitGroup
}

// NewPool starts the helpers, so that one that can't start is told of at once.
func NewPool(cfg Config) (*Pool, error) {
	if cfg.Size == 0 {
		cfg.Size = 2
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 30 * time.Second
	}
	// Empty for good: what the helpers stand in.
	dir, lock, err := makeDir()
	if err != nil {
		return nil, fmt.Errorf("make a directory for the helpers: %w", err)
	}
	p := &Pool{cfg: cfg, dir: dir, lock: lock, free: make(chan *process, cfg.Size)}
	p.life, p.stop = context.WithCancel(context.Background())
	for range cfg.Size {
		h, err := p.start()
		if err == nil {
			err = p.hello(h)
		}
		p.free <- h
		if err != nil {
			if h != nil {
				h.kill()
				err = fmt.Errorf("%w: %s", h.why(err), h.said())
			}
			return nil, errors.Join(fmt.Errorf("start a helper: %w", err), p.Close())
		}
	}
	return p, nil
}

// Close ends the helpers. It waits for none: requests that run fail.
func (p *Pool) Close() error {
	p.stop()
	p.busy.Wait()
	for range len(p.free) {
		if h := <-p.free; h != nil {
			h.kill()
		}
	}
	return errors.Join(os.RemoveAll(p.dir), p.lock.Close())
}

func (p *Pool) start() (*process, error) { return startProcess(p.cfg.Command, p.dir) }

// hello finds out that a helper works, and warns of what it couldn't give up.
func (p *Pool) hello(h *process) error {
	kind, missing, err := h.ask(p.life, p.cfg.Timeout, opHello, nil)
	if err != nil {
		return err
	}
	if missing, err = decode("start helper", kind, missing); err != nil {
		return err
	}
	if len(missing) > 0 && p.cfg.Logger != nil {
		p.cfg.Logger.LogAttrs(p.life, slog.LevelWarn, "binding helper keeps what it should give up", slog.String("what", string(missing)))
	}
	return nil
}

// ask has a helper answer one request. What goes wrong with the helper fails the
// request, but one that had ended before it was asked is replaced first.
func (p *Pool) ask(ctx context.Context, what string, kind byte, content []byte) ([]byte, error) {
	p.busy.Add(1)
	defer p.busy.Done()
	if len(content) > maxFrame {
		return nil, failure(what, fmt.Errorf("the statement has %d bytes; at most %d can be read", len(content), maxFrame))
	}
	var h *process
	select {
	case h = <-p.free:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-p.life.Done():
		return nil, failure(what, errors.New("the scheduler is closing"))
	}
	defer func() { p.free <- h }()
	if h != nil && h.ended() {
		p.replaced(h, errors.New("it ended while it had nothing to do"))
		h = nil
	}
	if h == nil {
		var err error
		if h, err = p.start(); err != nil {
			return nil, failure(what, fmt.Errorf("start a helper: %w", err))
		}
	}
	both, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.life, func() { cancel(errors.New("the scheduler is closing")) })()
	got, answer, err := h.ask(both, p.cfg.Timeout, kind, content)
	if err != nil {
		h.kill()
		err = h.why(err)
		broken := h
		h = nil
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		p.replaced(broken, err)
		return nil, failure(what, err)
	}
	return decode(what, got, answer)
}

func (p *Pool) replaced(h *process, why error) {
	h.kill()
	if p.cfg.Logger != nil && p.life.Err() == nil {
		p.cfg.Logger.LogAttrs(context.Background(), slog.LevelError, "binding helper replaced",
			slog.Int("pid", h.cmd.Process.Pid), slog.Any("error", why), slog.String("said", h.said()))
	}
}

// failure is the error for a statement that a helper couldn't look at.
func failure(what string, cause error) error {
	return &commit.Error{
		Code: commit.CodeBindHelper, Op: what, Object: "in the scheduler's helper process", Cause: cause,
		Tried: "nothing was run",
		Hint:  "Other statements go on in a new helper. If this one does it again, report it with the statement and the scheduler's log.",
	}
}

func decode(what string, kind byte, answer []byte) ([]byte, error) {
	switch {
	case kind == answered:
		return answer, nil
	case kind == complained && len(answer) >= 8:
		return nil, duckdb.NewParseError(string(answer[8:]), int(int64(binary.BigEndian.Uint64(answer))))
	case kind == failed:
		var e firnpb.TaskError
		if err := proto.Unmarshal(answer, &e); err != nil {
			return nil, failure(what, fmt.Errorf("its answer can't be read: %w", err))
		}
		return nil, wire.TaskErrorFromProto(&e)
	}
	return nil, failure(what, fmt.Errorf("it answered %q", kind))
}

// ParseSelect gives the parse tree of one SELECT, as duckdb.Parser does.
func (p *Pool) ParseSelect(ctx context.Context, text string) ([]byte, error) {
	return p.ask(ctx, "parse query", opParse, []byte(text))
}

// FormatSelect gives the text of a tree.
func (p *Pool) FormatSelect(ctx context.Context, tree []byte) (string, error) {
	text, err := p.ask(ctx, "write query", opFormat, tree)
	return string(text), err
}

// Probe binds a query that looks at no files; others it refuses. The helper gets
// the sources' names and columns, and nothing else of them.
func (p *Pool) Probe(ctx context.Context, req plan.ProbeRequest) (plan.ProbeResult, error) {
	var res plan.ProbeResult
	bare := slices.Clone(req.Sources)
	for i, s := range bare {
		bare[i] = plan.Source{View: s.View, Kind: s.Kind, Columns: s.Columns}
	}
	raw, err := json.Marshal(plan.ProbeRequest{SQL: req.SQL, Sources: bare})
	if err != nil {
		return res, err
	}
	if raw, err = p.ask(ctx, "bind query", opBind, raw); err != nil {
		return res, err
	}
	if err := json.Unmarshal(raw, &res); err != nil {
		return plan.ProbeResult{}, failure("bind query", fmt.Errorf("its answer can't be read: %w", err))
	}
	if len(res.Sources) != len(req.Sources) {
		return plan.ProbeResult{}, failure("bind query", fmt.Errorf("it answered for %d sources of %d", len(res.Sources), len(req.Sources)))
	}
	res.Sources = slices.Clone(req.Sources)
	return res, nil
}
