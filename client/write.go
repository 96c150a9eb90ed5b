package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/openwrite"
)

// WriteOptions are optional settings of BeginWrite. The zero value is right for
// most.
type WriteOptions struct {
	// Key is the idempotency key; a UUIDv7 is made when it is empty. Whoever may have
	// to resume a write after a restart names one.
	Key string
	// TTL is how long the write stays open without a renewal; 0 for the scheduler's
	// default.
	TTL time.Duration
	// DryRun: the commit ends where it would be sealed, and the files are deleted.
	// Key isn't used.
	DryRun bool
	// AfterDeadline is Statement's.
	AfterDeadline AfterDeadline
	// Engine names who writes, for people.
	Engine string
}

// Write is a write whose files are written by others than Firn's executors: the
// driver's end of it, or a worker's. It is safe for concurrent use, and holds no
// resources.
type Write struct {
	client *Client

	mu      sync.Mutex
	id      string
	context *WriteContext
	status  WriteStatus
	// asked: a commit was asked for, of which nobody said what came of it.
	asked bool
	// handled: handles were asked to be committed.
	handled bool
}

// BeginWrite begins a write of a table, or gives the one that was begun under the
// key. It isn't open when that one is sealed already: see Write.Context.
func (c *Client) BeginWrite(ctx context.Context, table string, opts WriteOptions) (*Write, error) {
	quoted, err := quoteName(table)
	if err != nil {
		return nil, err
	}
	b := openwrite.Begin{
		Version: openwrite.Version, Table: quoted, Key: opts.Key, TTLSeconds: int64((opts.TTL + time.Second - 1) / time.Second),
		DryRun: opts.DryRun, AfterDeadline: string(opts.AfterDeadline), Engine: opts.Engine,
	}
	switch {
	case opts.DryRun:
		b.Key = ""
	case b.Key == "":
		b.Key, b.KeyIsNew = NewKey(), true
	}
	return c.openWrite(ctx, openwrite.ActionBegin, b)
}

// ResumeWrite gives the newest write that was begun under a key, for a driver that
// was started again.
func (c *Client) ResumeWrite(ctx context.Context, key string) (*Write, error) {
	return c.openWrite(ctx, openwrite.ActionResume, openwrite.Resume{Version: openwrite.Version, Key: key})
}

// JoinWrite is a worker's end of a write: it can hand manifests in, and renew. The
// client is one that was dialled with the context's WorkerToken.
func (c *Client) JoinWrite(wc WriteContext) *Write {
	return &Write{client: c, id: wc.WriteID, context: &wc, status: WriteStatus{ID: wc.WriteID, Key: wc.Key, State: WriteOpen}}
}

func (c *Client) openWrite(ctx context.Context, action string, body any) (*Write, error) {
	w := &Write{client: c}
	if _, err := w.call(ctx, action, body); err != nil {
		return nil, err
	}
	return w, nil
}

// call makes one call and keeps what it says of the write.
func (w *Write) call(ctx context.Context, action string, body any) (openwrite.Answer, error) {
	a, err := w.client.writeAction(ctx, action, body)
	if err != nil {
		return a, err
	}
	s, err := writeStatusOf(a.Status)
	if err != nil {
		return a, err
	}
	var wc *WriteContext
	if a.Context != nil {
		if wc, err = contextOf(a.Context); err != nil {
			return a, err
		}
		if wc.WriteID != s.ID {
			return a, badAnswer("read the context of a write", fmt.Errorf("it is of write %.200q, and the status of %.200q", wc.WriteID, s.ID))
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.id != "" && s.ID != w.id {
		return a, badAnswer("call for write "+w.id, fmt.Errorf("the answer is of write %.200q", s.ID))
	}
	w.id, w.status = s.ID, s
	switch {
	case wc != nil:
		w.context = wc
	case s.State != WriteOpen:
		w.context = nil
	}
	return a, nil
}

// ID is the write's id, also that of its job.
func (w *Write) ID() string { w.mu.Lock(); defer w.mu.Unlock(); return w.id }

// Key is the idempotency key; empty for a dry run.
func (w *Write) Key() string { w.mu.Lock(); defer w.mu.Unlock(); return w.status.Key }

// Context is what it takes to write. ok is false when the write isn't open: it was
// sealed before, by this driver or another, and Status tells what became of it.
func (w *Write) Context() (wc WriteContext, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.context == nil {
		return WriteContext{}, false
	}
	return *w.context, true
}

// Renew keeps an open write from expiring, and gives a context with fresh keys.
// expiredKey is the id of a key that the store takes no longer; empty for none.
func (w *Write) Renew(ctx context.Context, expiredKey string) (WriteContext, error) {
	_, err := w.call(ctx, openwrite.ActionRenew, openwrite.Ref{Version: openwrite.Version, WriteID: w.ID(), Expired: expiredKey})
	if err != nil {
		return WriteContext{}, err
	}
	wc, ok := w.Context()
	if !ok {
		return wc, w.notOpen("renew write")
	}
	return wc, nil
}

func (w *Write) notOpen(op string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return &commit.Error{
		Code: commit.CodeWriteNotOpen, Op: op, Object: w.id, Cause: fmt.Errorf("it is %s", w.status.State),
		Hint: "Write.Status tells what became of it.",
	}
}

// Status asks how the write is, once.
func (w *Write) Status(ctx context.Context) (WriteStatus, error) { return w.statusAfter(ctx, 0) }

// statusAfter asks how the write is; the answer may wait for an outcome.
func (w *Write) statusAfter(ctx context.Context, wait time.Duration) (WriteStatus, error) {
	seconds := int64(wait / time.Second)
	a, err := w.call(ctx, openwrite.ActionStatus, openwrite.Ref{Version: openwrite.Version, WriteID: w.ID(), WaitSeconds: &seconds})
	if err != nil {
		return WriteStatus{}, err
	}
	return writeStatusOf(a.Status)
}

// Abort gives an open write up; its files are deleted. The error is CodeWriteNotOpen
// when it is sealed, and the status then says how its commit stands.
func (w *Write) Abort(ctx context.Context) (WriteStatus, error) {
	a, err := w.call(ctx, openwrite.ActionAbort, openwrite.Ref{Version: openwrite.Version, WriteID: w.ID()})
	if err != nil {
		return WriteStatus{}, err
	}
	s, err := writeStatusOf(a.Status)
	if err == nil && a.Result != openwrite.ResultAborted {
		err = w.notOpen("abort write")
	}
	return s, err
}

// WrittenFile is a file that a worker wrote. Firn reads its footer itself.
type WrittenFile struct {
	// Path is the file's URI under the context's prefix.
	Path string
	// Size and Rows are what the worker knows of it, negative for nothing; a file that
	// has another size or number of rows is refused.
	Size, Rows int64
	// Partition are partition values as texts by the names of the partition fields,
	// nil for null. A field may be left out whose value the file's own statistics
	// tell.
	Partition map[string]*string
}

// HandInFiles hands in the files of an attempt by their paths: Firn reads their
// footers, and derives counts, bounds and partition values. No files are a
// manifest too. The same files give the same handle again.
func (w *Write) HandInFiles(ctx context.Context, attempt string, files []WrittenFile) (Handle, error) {
	rows := make([]openwrite.PathsRow, len(files))
	for i, f := range files {
		rows[i] = openwrite.PathsRow(f)
	}
	b, err := openwrite.EncodePaths(rows)
	if err != nil {
		return "", w.badManifest(attempt, err)
	}
	defer b.Release()
	return w.handIn(ctx, attempt, b)
}

// HandIn hands in a complete manifest of the files that an attempt wrote. Their
// attempt and format are filled in. No files are a manifest too.
func (w *Write) HandIn(ctx context.Context, attempt string, files []commit.File) (Handle, error) {
	whole := make([]commit.File, len(files))
	for i, f := range files {
		f.Attempt, f.Format = attempt, "PARQUET"
		whole[i] = f
	}
	b, err := wire.EncodeManifest(whole)
	if err != nil {
		return "", w.badManifest(attempt, err)
	}
	defer b.Release()
	return w.handIn(ctx, attempt, b)
}

func (w *Write) badManifest(attempt string, err error) error {
	return &commit.Error{Code: commit.CodeBadCall, Op: "hand in the manifest of attempt " + attempt + " of write", Object: w.ID(), Cause: err}
}

// sliceRows is how many rows of a manifest go into one message.
const sliceRows = 1000

func (w *Write) handIn(ctx context.Context, attempt string, manifest arrow.RecordBatch) (Handle, error) {
	if !openwrite.ValidAttempt(attempt) {
		return "", w.badManifest(attempt, errors.New("an attempt's id has letters, digits, underscores and dots"))
	}
	var handle Handle
	err := w.client.again(ctx, func() error {
		var err error
		handle, err = w.put(ctx, attempt, manifest)
		return err
	})
	return handle, err
}

// put sends a manifest once.
func (w *Write) put(ctx context.Context, attempt string, manifest arrow.RecordBatch) (Handle, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := flight.NewClientFromConn(w.client.conn, nil).DoPut(ctx)
	if err != nil {
		return "", err
	}
	out := flight.NewRecordWriter(stream, ipc.WithSchema(manifest.Schema()))
	out.SetFlightDescriptor(&flight.FlightDescriptor{
		Type: flight.DescriptorPATH, Path: []string{openwrite.DescriptorManifest, w.ID(), attempt},
	})
	// A failed send only says that the stream has ended; why comes with the answer.
	sent := func() error {
		for from := int64(0); from < manifest.NumRows(); from += sliceRows {
			part := manifest.NewSlice(from, min(from+sliceRows, manifest.NumRows()))
			err := out.Write(part)
			part.Release()
			if err != nil {
				return err
			}
		}
		return errors.Join(out.Close(), stream.CloseSend())
	}()
	var handle Handle
	for {
		r, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF) && sent == nil && handle != "":
			return handle, nil
		case errors.Is(err, io.EOF):
			return "", badAnswer("hand in the manifest of attempt "+attempt+" of write "+w.ID(), errors.Join(sent, errors.New("there was no handle in the answer")))
		case err != nil:
			return "", err
		}
		if len(r.GetAppMetadata()) > 0 {
			if len(r.GetAppMetadata()) > maxID {
				return "", badAnswer("hand in the manifest of attempt "+attempt+" of write "+w.ID(), fmt.Errorf("a handle of %s bytes", strconv.Itoa(len(r.GetAppMetadata()))))
			}
			handle = Handle(r.GetAppMetadata())
		}
	}
}

// commitWait is how long one answer may wait for an outcome.
const commitWait = 30 * time.Second

// Commit commits exactly the files of the handles, and waits for the outcome. The
// error is nil exactly when they are committed (or would be, of a dry run); else
// commit.KindOf tells a commit whose outcome isn't known (the report says so too)
// from one that was refused. Another driver's commit of the same handles is joined.
// A *SealedError says that the write was sealed with other handles, or that another
// submission of its key was committed; the report is of those.
//
// A report with RolledBack is of a commit that somebody has taken out of the table's
// history since, before its outcome was known: it was committed, the table's current
// version doesn't have it, and it isn't committed again.
//
// When ctx ends first, nobody answers, or the call isn't let in, the report's state is
// unknown: the commit, or one that was asked for before, may go on, and Commit may be
// called again.
func (w *Write) Commit(ctx context.Context, handles []Handle) (commit.Report, error) {
	req := openwrite.Commit{Version: openwrite.Version, WriteID: w.ID(), Handles: []string{}}
	for _, h := range handles {
		req.Handles = append(req.Handles, string(h))
	}
	seconds := int64(commitWait / time.Second)
	req.WaitSeconds = &seconds
	w.mu.Lock()
	w.handled = true
	w.mu.Unlock()
	a, err := w.call(ctx, openwrite.ActionCommit, req)
	if err != nil {
		return w.untold(err), err
	}
	s, err := writeStatusOf(a.Status)
	if err != nil {
		return w.untold(err), err
	}
	switch a.Result {
	case openwrite.ResultSealed, openwrite.ResultJoined, openwrite.ResultNotOpen:
	case openwrite.ResultOtherHandles:
		return s.report(), &SealedError{Status: s} // whatever became of those
	default:
		err := badAnswer("commit write "+s.ID, fmt.Errorf("the result %.40q isn't known", a.Result))
		return w.untold(err), err
	}
	return w.wait(ctx, s)
}

// Wait waits for the outcome of a write that is sealed, as Commit does. Of a write whose
// key was committed before it could open, it gives the report of that, and no error
// unless handles of this one were to be committed.
func (w *Write) Wait(ctx context.Context) (commit.Report, error) {
	s, err := w.Status(ctx)
	if err != nil {
		return w.untold(err), err
	}
	return w.wait(ctx, s)
}

func (w *Write) wait(ctx context.Context, s WriteStatus) (commit.Report, error) {
	for !s.settled() {
		next, err := w.statusAfter(ctx, commitWait)
		if err != nil {
			return w.untold(err), err
		}
		if s = next; !s.settled() && !sleep(ctx, w.client.opts.poll) {
			return w.untold(nil), context.Cause(ctx)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.State == WriteCommitted && s.SealDigest == "" && w.handled {
		return s.report(), &SealedError{Status: s}
	}
	return s.report(), s.outcome()
}

// untold is the report of a commit that was asked for and whose end nobody told. That a
// call changed nothing says nothing of those before it, which may have sealed the write
// though nobody heard of it. Only a void handle shows that the write was open; it may be
// sealed all the same by a commit that was asked for before and is still on its way.
func (w *Write) untold(err error) commit.Report {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := commit.Report{JobID: w.id, Key: w.status.Key, State: commit.CommitUnknown}
	if commit.CodeOf(err) != commit.CodeHandleVoid {
		w.asked = true
	} else if !w.asked {
		r.State = commit.CommitNone
	}
	return r
}
