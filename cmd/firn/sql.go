package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/render"
	"github.com/firn-project/firn/sql"
	"github.com/spf13/cobra"
)

// sqlFlags are those of `firn sql`.
type sqlFlags struct {
	target
	commands    []string
	file        string
	key         string
	rejectLimit int64
	timeout     time.Duration
	mode        string
	timeZone    string
	dryRun      bool

	afterDeadline string
}

func (a *app) sqlCommand() *cobra.Command {
	var f sqlFlags
	cmd := &cobra.Command{
		Use:   "sql [--server HOST:PORT | --dir DIR] [-c SQL | -f FILE]",
		Short: "Run SQL statements",
		Long: `Runs SQL statements from -c, a file or stdin, one after the other, until one fails.

Without --server an embedded cluster starts under --dir, runs the statements and ends; its tables
stay. Its catalog is called lake. It is one process, so there is no credential boundary in it.

Rows and results go to stdout, everything else to stderr. With -o json each statement gives exactly
one line: an array of row objects, {"statement":…,"ok":true}, or one object about a write.

The idempotency key makes a repeated write safe: the same statement under the same key is written
once. Statement n of several uses the key KEY/n. The default is a new UUIDv7 each time.`,
		Example: `  firn sql -c "SELECT count(*) FROM 'flights.parquet'"
  firn sql --server 127.0.0.1:7350 -f load.sql --idempotency-key load-2026-11-30 -o json`,
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runSQL(cmd, f) },
	}
	f.flags(cmd)
	fs := cmd.Flags()
	fs.StringArrayVarP(&f.commands, "command", "c", nil, "`SQL` to run (repeatable)")
	fs.StringVarP(&f.file, "file", "f", "", "`file` of statements; - is stdin")
	fs.StringVar(&f.key, "idempotency-key", "", "`key` that makes a repeated write safe")
	fs.IntVar(&f.executors, "executors", 1, "how many executors the embedded cluster has")
	fs.Int64Var(&f.rejectLimit, "reject-limit", 0, "how many `rows` that can't be read or cast may be left out")
	fs.DurationVar(&f.timeout, "timeout", 0, "how long to wait for all statements, such as 10m; 0 for ever")
	fs.StringVar(&f.mode, "mode", "", "how a SELECT runs: staged, pipelined (rows come while it runs) or cached")
	fs.StringVar(&f.timeZone, "time-zone", "", "`time zone` of the session; UTC by default")
	fs.BoolVar(&f.dryRun, "dry-run", false, "run INSERT up to its commit, verify what it wrote, and delete that")
	fs.StringVar(&f.afterDeadline, "after-deadline", "look",
		"what the scheduler does for a commit of unknown outcome: look, fence (an empty commit) or retry")
	fs.BoolVarP(&a.quiet, "quiet", "q", false, "no hints and no progress on stderr")
	fs.BoolVar(&a.noProgress, "no-progress", false, "no progress on stderr")
	a.outputFlag(cmd)
	logFlags(cmd, "warn", "text")
	return cmd
}

func (a *app) runSQL(cmd *cobra.Command, f sqlFlags) error {
	format, err := a.format()
	if err != nil {
		return err
	}
	if a.given["executors"] && f.server != "" && !a.given["dir"] {
		return usage(cmd, "--executors is for the embedded cluster; a server has its own")
	}
	if f.executors < 1 || f.executors > 64 {
		return usage(cmd, "--executors %d: want 1 to 64", f.executors)
	}
	if f.rejectLimit < 0 {
		return usage(cmd, "--reject-limit %d: want 0 or more", f.rejectLimit)
	}
	if a.given["idempotency-key"] && f.key == "" {
		return usage(cmd, "--idempotency-key is empty: a variable that isn't set? Without the flag a new key is made")
	}
	if f.afterDeadline == "look" {
		f.afterDeadline = string(client.AfterDeadlineLook)
	} else if f.afterDeadline != string(client.AfterDeadlineFence) && f.afterDeadline != string(client.AfterDeadlineRetry) {
		return usage(cmd, "--after-deadline %s: want look, fence or retry", f.afterDeadline)
	}
	text, err := a.statementText(cmd, f)
	if err != nil {
		return err
	}
	statements, err := sql.Parse(text)
	if err != nil {
		return err
	}
	if len(statements) == 0 {
		return usage(cmd, "there is no statement in the input")
	}
	return a.with(cmd, f.target, func(ctx context.Context, s *session) error {
		if f.timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, f.timeout, errWaited)
			defer cancel()
		}
		if s.embedded != nil {
			a.hint("embedded cluster in %s: one process, so no credential boundary between executors and catalog", f.dir)
		}
		r := &runner{app: a, session: s, format: format, flags: f, base: f.key}
		return r.run(ctx, statements)
	})
}

// statementText is the SQL from wherever it comes.
func (a *app) statementText(cmd *cobra.Command, f sqlFlags) (string, error) {
	switch {
	case len(f.commands) > 0 && f.file != "":
		return "", usage(cmd, "-c and -f exclude each other")
	case len(f.commands) > 0:
		return strings.Join(f.commands, "\n;\n"), nil
	case f.file != "" && f.file != "-":
		raw, err := os.ReadFile(f.file)
		if err != nil {
			return "", usage(cmd, "-f: %s", err)
		}
		return string(raw), nil
	case f.file == "" && isTerminal(a.stdin):
		return "", usage(cmd, "no statement: give -c SQL or -f FILE, or pipe statements in")
	default:
		raw, err := io.ReadAll(a.stdin)
		if err != nil {
			return "", usage(cmd, "stdin: %s", err)
		}
		return string(raw), nil
	}
}

// runner runs the statements of one call.
type runner struct {
	*app
	session *session
	format  render.Format
	flags   sqlFlags
	// base is the key of the call.
	base string
	// newBase: the key was made for this call.
	newBase bool
	// in is the SQL session, carried from statement to statement.
	in client.Session
}

func (r *runner) run(ctx context.Context, statements []sql.Statement) error {
	if r.base == "" {
		r.base, r.newBase = client.NewKey(), true
		if r.format != render.JSON && r.format != render.JSONL && writes(statements) {
			r.hint("idempotency key: %s", r.base)
		}
	}
	for i, st := range statements {
		key := r.base
		if len(statements) > 1 {
			key = fmt.Sprintf("%s/%d", r.base, i+1)
		}
		if err := r.statement(ctx, st, key); err != nil {
			if left := len(statements) - i - 1; left > 0 {
				r.hint("statement %d of %d failed; the %d after it did not run", i+1, len(statements), left)
			}
			return err
		}
	}
	return nil
}

func writes(statements []sql.Statement) bool {
	for _, st := range statements {
		if st.Kind == "INSERT" {
			return true
		}
	}
	return false
}

func (r *runner) statement(ctx context.Context, st sql.Statement, key string) error {
	res, err := r.session.Execute(ctx, client.Statement{
		SQL: st.Text, Session: r.in, Key: key, KeyIsNew: r.newBase, RejectLimit: r.flags.rejectLimit,
		Mode: client.Mode(r.flags.mode), TimeZone: r.flags.timeZone, DryRun: r.flags.dryRun && st.Kind == "INSERT",
		AfterDeadline: client.AfterDeadline(r.flags.afterDeadline),
	})
	if err != nil {
		if why := stopped(ctx, err); why != nil {
			return r.abandon(ctx, r.session.JobByKey(key), why)
		}
		if strings.Contains(err.Error(), "Error while dialing") {
			return err // gRPC's word for a call that it never had a connection for
		}
		return r.doubt(st, err)
	}
	r.in = res.Session
	switch {
	case res.Job == nil && res.Schema == nil:
		return r.done(res.Statement)
	case res.Job == nil:
		return r.answer(ctx, res)
	}
	if res.Statement == "SELECT" && client.Mode(r.flags.mode) == client.ModePipelined {
		return r.stream(ctx, res.Job)
	}
	status, err := r.watch(ctx, res.Job)
	if why := stopped(ctx, err); err != nil && why != nil {
		return r.abandon(ctx, res.Job, why)
	}
	r.leftOut(status)
	if res.Statement != "SELECT" {
		err = r.doubt(st, err)
		if status.ID == "" {
			return err
		}
		return errors.Join(err, r.written(status))
	}
	if err != nil {
		return err
	}
	schema, err := status.Schema()
	if err != nil {
		return err
	}
	_, err = render.Rows(r.stdout, r.format, schema, status.Batches(ctx, r.session.Client))
	if why := stopped(ctx, err); err != nil && why != nil {
		return r.abandon(ctx, res.Job, why)
	}
	return err
}

// leftOut tells which rows a job left out.
func (r *runner) leftOut(status client.JobStatus) {
	for _, line := range status.Rejects {
		r.hint("left out: %s", line)
	}
	if status.RejectedRows > 0 {
		r.hint("%d rows were left out under --reject-limit %d", status.RejectedRows, r.flags.rejectLimit)
	}
}

// stream writes a job's rows while it runs. What was written before an error isn't to
// be used.
func (r *runner) stream(ctx context.Context, job *client.Job) error {
	next, stop := iter.Pull2(job.Rows(ctx))
	defer stop()
	batch, err, more := next()
	var schema *arrow.Schema
	if !more { // which says it with the first rows
		status, serr := job.Status(ctx)
		if schema, err = status.Schema(); serr != nil {
			err = serr
		}
	}
	if err == nil {
		_, err = render.Rows(r.stdout, r.format, schema, func(yield func(arrow.RecordBatch, error) bool) {
			for more && yield(batch, err) {
				batch, err, more = next()
			}
		})
	}
	if why := stopped(ctx, err); err != nil && why != nil {
		return r.abandon(ctx, job, why)
	}
	if err != nil {
		return err
	}
	status, err := job.Status(ctx)
	r.leftOut(status)
	return err
}

// doubt makes an unknown outcome of a connection that was lost while the scheduler
// had an INSERT, or may have had it: it goes on with that, also after a restart.
func (r *runner) doubt(st sql.Statement, err error) error {
	code := commit.CodeOf(err)
	if st.Kind != "INSERT" || r.flags.dryRun || code != commit.CodeUnreachable && code != commit.CodeProtocol {
		return err
	}
	return &commit.Error{
		Code: commit.CodeUnknown, Op: "follow", Object: "INSERT", Cause: err,
		Tried: "The connection was lost when the statement may have been sent; the scheduler goes on with it.",
		Hint:  "Run the same again with --idempotency-key " + r.base + ": nothing is written twice, and the outcome is told.",
	}
}

// hint tells a person something that isn't data.
func (a *app) hint(format string, args ...any) {
	if !a.quiet {
		_, _ = fmt.Fprintf(a.stderr, "firn: "+format+"\n", args...)
	}
}

// errWaited is why a context ends at the --timeout.
var errWaited = errors.New("the time given by --timeout has passed")

// stopped is why waiting was ended from this side, or nil if err is something
// else.
func stopped(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if cause == nil || err == nil {
		return nil
	}
	if _, ok := errors.AsType[*commit.Error](err); ok {
		return nil
	}
	return cause
}

// abandon ends the waiting for a job. On a server the job goes on; the embedded
// cluster ends with this process, so there the job is cancelled, unless its commit
// is on its way: that is waited for.
func (r *runner) abandon(ctx context.Context, job *client.Job, why error) error {
	e := &commit.Error{Code: commit.CodeInterrupted, Op: "wait for job", Object: job.ID(), Cause: why}
	if errors.Is(why, errWaited) || errors.Is(why, context.DeadlineExceeded) {
		e.Code = commit.CodeWaitTimeout
	}
	if e.Object == "" {
		e.Object = "with key " + job.Key()
	}
	if r.session.embedded == nil {
		arg := job.ID()
		if arg == "" {
			arg = "--key " + job.Key()
		}
		e.Tried = "The job is still running on the scheduler."
		e.Hint = fmt.Sprintf("`firn job wait %s --server %s` waits on, `firn job cancel %[1]s --server %[2]s` stops it.", arg, r.flags.server)
		return e
	}
	e.Hint = "Run the statement again; with the same --idempotency-key nothing is written twice."
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	defer context.AfterFunc(r.giveUp, cancel)()
	answer, status, err := job.Cancel(ctx)
	if err == nil && answer == client.CommitInFlight {
		r.hint("the commit is on its way; waiting for its outcome")
		status, err = job.Wait(ctx)
	}
	switch {
	case status.ID == "":
		e.Tried = "The embedded cluster ends; the job had not begun or ends with it."
	case status.Commit == commit.CommitCommitted:
		e.Tried = "The job's commit had landed before: the table changed."
		err = r.written(status)
	case status.Commit == commit.CommitUnknown || status.Commit == commit.CommitInFlight:
		e.Tried = "The job's commit was sent and its outcome isn't known."
		e.Hint = "Run the statement again with --idempotency-key " + status.Key + ": it finds out first."
	default:
		e.Tried = "The job was cancelled; nothing was committed, and nothing is running any more."
		err = nil
	}
	if err != nil {
		e.Cause = errors.Join(why, err)
	}
	return e
}
