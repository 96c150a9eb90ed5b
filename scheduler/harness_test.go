package scheduler

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/sql"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// canary stands for a catalog's secret.
const canary = "canary-catalog-secret"

// noCatalogs stands for what a test doesn't use.
type noCatalogs interface {
	sql.Catalogs
}

// fakeCatalogs has one table, in memory, with everything of a real commit
// behind it.
type fakeCatalogs struct {
	noCatalogs
	table *committest.Catalog
	// build and send are called before the table's driver builds or sends.
	mu          sync.Mutex
	build, send func()
	faults      []string
	pinErr      error
	storage     map[string]string
	deleted     []string
	// planning is how the scheduler of a test plans; static when empty.
	planning string
}

func (c *fakeCatalogs) Catalogs(context.Context) ([]string, error) { return []string{"mem"}, nil }

func (c *fakeCatalogs) Pin(_ context.Context, name commit.TableName) (plan.Pinned, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pinErr != nil {
		return plan.Pinned{}, c.pinErr
	}
	return plan.Pinned{
		Name: name, Format: "iceberg", UUID: c.table.UUID(), FormatVersion: 2, MetadataLocation: canary,
		Location: "mem://t", DataLocation: "mem://t/data", Storage: c.storage,
		SchemaJSON: []byte(`{"type":"struct","schema-id":0,"fields":[{"id":1,"name":"a","required":false,"type":"long"}]}`),
		SpecJSON:   []byte(`{"spec-id":0,"fields":[]}`),
	}, nil
}

func (c *fakeCatalogs) OpenTable(context.Context, commit.TableName) (commit.Table, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// The committer keeps a table open, so what a test sets counts for it too.
	d := committest.NewDriver(c.table)
	hook := func(f *func()) func() {
		return func() {
			var run func()
			if c.set(func() { run = *f }); run != nil {
				run()
			}
		}
	}
	d.BeforeBuild = hook(&c.build)
	send := hook(&c.send)
	d.BeforeSend = func() {
		send()
		c.set(func() {
			if len(c.faults) > 0 {
				if err := d.Inject(c.faults[0]); err != nil {
					panic(err)
				}
				c.faults = c.faults[1:]
			}
		})
	}
	return d, nil
}

func (c *fakeCatalogs) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// lose kills an executor and tells the scheduler, which would otherwise find out
// by its silence.
func (h *harness) lose(e *fakeExecutor) {
	h.t.Helper()
	e.kill()
	must(h.t, h.s.loop.call(h.t.Context(), func() {
		if lost := h.s.state.executors[e.id]; lost != nil {
			h.s.loseExecutor(lost, "killed by a test")
		}
	}))
}

type harness struct {
	t        testing.TB
	s        *Scheduler
	catalogs *fakeCatalogs
	client   firnpb.ClientServiceClient
	dir      string
}

// start runs a scheduler over an in-memory table. edit may change its
// configuration; prepare sees it right before its start.
func start(t testing.TB, edit func(*Config)) *harness {
	t.Helper()
	return startIn(t, t.TempDir(), &fakeCatalogs{table: committest.NewCatalog(committest.Mode{})}, edit)
}

func startIn(t testing.TB, dir string, catalogs *fakeCatalogs, edit func(*Config), prepare ...func(*Scheduler)) *harness {
	t.Helper()
	h := &harness{t: t, dir: dir, catalogs: catalogs}
	cfg := Config{
		Dir: dir, Catalogs: catalogs, HeartbeatInterval: 20 * time.Millisecond, ExecutorTimeout: time.Minute,
		ExecutorWait: 5 * time.Second, CloseTimeout: 10 * time.Second,
		bindStatement: bindFake(catalogs), Planning: cmp.Or(catalogs.planning, PlanningStatic),
		DeleteFile: func(_ context.Context, _ map[string]string, uri string) error {
			catalogs.set(func() { catalogs.deleted = append(catalogs.deleted, uri) })
			return nil
		},
	}
	if os.Getenv("FIRN_TEST_LOG") != "" {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if edit != nil {
		edit(&cfg)
	}
	var err error
	h.s, err = New(cfg)
	must(t, err)
	for _, f := range prepare {
		f(h.s)
	}
	must(t, h.s.Start(t.Context()))
	conn, err := grpc.NewClient("passthrough:///"+h.s.Addr(), wire.DialOptions()...)
	must(t, err)
	h.client = firnpb.NewClientServiceClient(conn)
	t.Cleanup(func() {
		_ = conn.Close()
		h.close()
	})
	return h
}

func (h *harness) close() {
	if h.s == nil {
		return
	}
	if err := h.s.Close(context.Background()); err != nil {
		h.t.Errorf("close: %v", err)
	}
	h.s = nil
}

const parts = 3

// bindFake binds an INSERT to parts parallel writers, or to a hash exchange
// when its query says so, and a SELECT to parts parallel queries.
func bindFake(c *fakeCatalogs) func(context.Context, sql.Statement, plan.Session, sql.BindOptions) (plan.Node, error) {
	return func(ctx context.Context, st sql.Statement, _ plan.Session, opts sql.BindOptions) (plan.Node, error) {
		if in, ok := st.Body.(*sql.Insert); ok {
			name := committest.Name
			pinned, err := c.Pin(ctx, name)
			if err != nil {
				return nil, err
			}
			top := insertPlan(pinned, pinned.DataLocation+"/"+opts.JobID+"/", in.Query.Text == "SELECT 2")
			return top, nil
		}
		if s, ok := st.Body.(*sql.Select); ok && s.Query.Text == "SELECT 'bad'" {
			return nil, &commit.Error{Code: commit.CodeBadRequest, Op: "bind", Cause: errors.New("no such column")}
		}
		return queryPlan(), nil
	}
}

func queryPlan() *plan.Query {
	q := &plan.Query{
		SQL: "SELECT a FROM firn_s0", Parallel: true, Why: "row-wise", Deterministic: true,
		Columns: []plan.Column{{Name: "a", Type: "BIGINT"}},
		Sources: []plan.Source{{View: []string{"firn_s0"}, Kind: plan.SourceParquet}},
	}
	for range parts {
		q.Partitions = append(q.Partitions, []plan.SourceFile{{Path: "/in.parquet"}})
	}
	return q
}

func insertPlan(pinned plan.Pinned, prefix string, exchange bool) plan.Node {
	var in plan.Node = queryPlan()
	if exchange {
		in = &plan.Exchange{Input: in, How: plan.ExchangeHash, Partitions: 2, Layout: &plan.Layout{}}
	}
	return &plan.Commit{
		Target: pinned, Branch: commit.MainBranch, Operation: commit.OperationAppend, Prefix: prefix,
		Input: &plan.Write{Input: in, Context: plan.WriteContext{Table: pinned.Name, TableUUID: pinned.UUID, Prefix: prefix, Storage: pinned.Storage}},
	}
}

const insert = "INSERT INTO mem.ns.t SELECT 1"

func (h *harness) execute(req *firnpb.ExecuteRequest) (*firnpb.ExecuteResponse, error) {
	req.ProtocolVersion = wire.ProtocolVersion
	resp, err := h.client.Execute(h.t.Context(), req)
	return resp, wire.FromStatus(err)
}

// submit starts a job and returns its id.
func (h *harness) submit(req *firnpb.ExecuteRequest) string {
	h.t.Helper()
	resp, err := h.execute(req)
	must(h.t, err)
	if resp.GetJob() == nil {
		h.t.Fatalf("no job: %v", resp)
	}
	return resp.GetJob().GetJobId()
}

func (h *harness) run(req *firnpb.ExecuteRequest) *firnpb.JobStatus {
	h.t.Helper()
	return h.wait(h.submit(req))
}

// wait watches a job to its end.
func (h *harness) wait(id string) *firnpb.JobStatus {
	h.t.Helper()
	all := h.watch(id)
	return all[len(all)-1]
}

// ended gives a job's last status, by stream or by poll.
func (h *harness) ended(id, delivery string) *firnpb.JobStatus {
	h.t.Helper()
	if delivery == "stream" {
		return h.wait(id)
	}
	st := h.get(id)
	for !endedState(st.GetState()) {
		st = h.get(id)
	}
	return st
}

func (h *harness) watch(id string) []*firnpb.JobStatus {
	h.t.Helper()
	stream, err := h.client.WatchJob(h.t.Context(), &firnpb.JobRequest{JobId: id})
	must(h.t, err)
	var all []*firnpb.JobStatus
	for {
		st, err := stream.Recv()
		if err != nil {
			if len(all) == 0 || !endedState(all[len(all)-1].GetState()) {
				h.t.Fatalf("watch ended with %v after %v", err, all)
			}
			return all
		}
		all = append(all, st)
	}
}

// waitUntil watches a job until a status fits.
func (h *harness) waitUntil(id string, fits func(*firnpb.JobStatus) bool) *firnpb.JobStatus {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	defer cancel()
	stream, err := h.client.WatchJob(ctx, &firnpb.JobRequest{JobId: id})
	must(h.t, err)
	for {
		st, err := stream.Recv()
		if err != nil {
			h.t.Fatalf("no status fits: %v", err)
		}
		if fits(st) {
			return st
		}
	}
}

func (h *harness) get(id string) *firnpb.JobStatus {
	h.t.Helper()
	st, err := h.client.GetJob(h.t.Context(), &firnpb.JobRequest{JobId: id})
	must(h.t, err)
	return st
}

func wantState(t testing.TB, st *firnpb.JobStatus, state graph.State, c commit.CommitState) {
	t.Helper()
	if st.GetState() != string(state) || st.GetCommit() != string(c) {
		t.Fatalf("job is %s, commit %s (%v), want %s, %s", st.GetState(), st.GetCommit(), st.GetError(), state, c)
	}
}

// receive waits for a value of a channel.
func receive[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(20 * time.Second):
		t.Fatalf("no %s came", what)
		panic("unreachable")
	}
}
