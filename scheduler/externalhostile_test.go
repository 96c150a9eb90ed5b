package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/internal/wire/openwrite"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/journal"
	"github.com/firn-project/firn/scheduler/writes"
)

// TestOpenWritesInAll: the bound on all open writes holds where one principal may have
// more than that.
func TestOpenWritesInAll(t *testing.T) {
	h := start(t, func(c *Config) { c.Writes = writes.Config{MaxOpen: 2, MaxOpenPrincipal: 3} })
	d := h.driver()
	first := d.begin("1")
	d.begin("2")
	_, err := d.do(openwrite.ActionBegin, openwrite.Begin{Version: 1, Table: writeTable, Key: "3", KeyIsNew: true})
	wantFault(t, err, commit.CodeTooManyWrites, "2 writes are open, and 2 are allowed")
	d.must(openwrite.ActionAbort, ref(first.WriteID))
	d.begin("3")
}

// TestWriteQuotas: open writes, manifests, files and bytes are bounded.
func TestWriteQuotas(t *testing.T) {
	h := start(t, func(c *Config) {
		c.Writes = writes.Config{MaxOpen: 3, MaxOpenPrincipal: 2, MaxManifests: 2, MaxFiles: 3, MaxManifest: 8 << 10, MaxAge: 2 * time.Hour}
	})
	d := h.driver()
	c := d.begin("1")
	d.begin("2")
	_, err := d.do(openwrite.ActionBegin, openwrite.Begin{Version: 1, Table: writeTable, Key: "3", KeyIsNew: true})
	wantFault(t, err, commit.CodeTooManyWrites, "of this principal")
	d.begin("2") // is there already
	long := d.must(openwrite.ActionRenew, ref(c.WriteID)).Context
	if long.MaxExpires.Sub(long.Begun) > 2*time.Hour+time.Second || long.Expires.After(long.MaxExpires) {
		t.Errorf("%+v", long)
	}
	many := []commit.File{}
	for i := range 4 {
		f := fileOf(c, "a")
		f.Path = fmt.Sprintf("%sa-%d.parquet", c.Prefix, i)
		many = append(many, f)
	}
	_, err = d.handIn(c.WriteID, "a", many...)
	wantFault(t, err, commit.CodeManifestRefused, "more than 3 files")
	_, err = d.handIn(c.WriteID, "a", many[:2]...)
	must(t, err)
	f := fileOf(c, "b")
	more := fileOf(c, "b")
	more.Path = c.Prefix + "b-1.parquet"
	_, err = d.handIn(c.WriteID, "b", f, more)
	wantFault(t, err, commit.CodeManifestRefused, "4 files; 3 are allowed")
	big := fileOf(c, "b")
	big.Lower = map[int][]byte{1: make([]byte, 16<<10)}
	_, err = d.handIn(c.WriteID, "b", big)
	wantFault(t, err, commit.CodeManifestRefused, "more than 8192 bytes")
	b := d.write(c, "b")
	_, err = d.handIn(c.WriteID, "c")
	wantFault(t, err, commit.CodeManifestRefused, "3 manifests; 2 are allowed")
	if a := d.seal(c.WriteID, b); a.Status.State != openwrite.StateCommitted {
		t.Errorf("%+v", a)
	}
	d.begin("3") // there is room again
}

// TestHostileWorkers: what a worker may not do it is told, and nothing comes of it.
func TestHostileWorkers(t *testing.T) {
	h := start(t, func(c *Config) {
		c.Authenticate = func(ctx context.Context, method string) error {
			md, _ := metadata.FromIncomingContext(ctx)
			if slices.Equal(md.Get("authorization"), []string{"Bearer client"}) {
				return nil
			}
			return &commit.Error{Code: commit.CodeUnauthenticated, Op: "let in", Object: method, Cause: errors.New("who is it?")}
		}
	})
	d := h.driver()
	d.token = "client"
	c, other := d.begin("k"), d.begin("other")
	w := h.driver()
	w.token = c.WorkerToken
	handle := w.write(c, "good")

	t.Run("tokens", func(t *testing.T) {
		if a, err := w.do(openwrite.ActionRenew, ref(c.WriteID)); err != nil || a.Context == nil || a.Context.WorkerToken == "" {
			t.Errorf("%+v, %v", a, err)
		}
		_, err := w.do(openwrite.ActionRenew, ref(other.WriteID))
		wantFault(t, err, commit.CodeUnauthenticated, "another write")
		_, err = w.handIn(other.WriteID, "a", fileOf(other, "a"))
		wantFault(t, err, commit.CodeUnauthenticated, "another write")
		for kind, body := range map[string]any{
			openwrite.ActionCommit: openwrite.Commit{Version: 1, WriteID: c.WriteID, Handles: []string{handle}}, openwrite.ActionAbort: ref(c.WriteID),
			openwrite.ActionStatus: ref(c.WriteID), openwrite.ActionResume: openwrite.Resume{Version: 1, Key: "k"},
			openwrite.ActionBegin: openwrite.Begin{Version: 1, Table: writeTable},
		} {
			_, err := w.do(kind, body)
			wantFault(t, err, commit.CodeUnauthenticated, "client token")
		}
		bad := h.driver()
		for _, token := range []string{"", "fw1.", c.WorkerToken + "x", c.WorkerToken[:len(c.WorkerToken)-4], strings.Replace(c.WorkerToken, "fw1.", "fw1", 1), "stranger"} {
			bad.token = token
			_, err := bad.do(openwrite.ActionRenew, ref(c.WriteID))
			wantFault(t, err, commit.CodeUnauthenticated, "")
			_, err = bad.handIn(c.WriteID, "a", fileOf(c, "a"))
			wantFault(t, err, commit.CodeUnauthenticated, "")
		}
		conn, err := grpc.NewClient("passthrough:///"+h.s.Addr(), wire.DialOptions()...)
		must(t, err)
		defer conn.Close()
		_, err = firnpb.NewClientServiceClient(conn).ListJobs(w.ctx(t.Context()), &firnpb.ListJobsRequest{})
		if err == nil {
			t.Error("a worker's token lists jobs")
		}
	})
	t.Run("manifests", func(t *testing.T) {
		file := func(change func(*commit.File)) commit.File {
			f := fileOf(c, "evil")
			change(&f)
			return f
		}
		for want, f := range map[string]commit.File{
			"prefix is":               file(func(f *commit.File) { f.Path = "mem://t/data/elsewhere/evil-0.parquet" }),
			"the prefix is":           file(func(f *commit.File) { f.Path = other.Prefix + "evil-0.parquet" }),
			"steps up":                file(func(f *commit.File) { f.Path = c.Prefix + "../" + other.WriteID + "/evil-0.parquet" }),
			"read as":                 file(func(f *commit.File) { f.Path = c.Prefix + "%2e%2e/evil-0.parquet" }),
			"name":                    file(func(f *commit.File) { f.Path = c.Prefix + "good-0.parquet" }),
			"begins with":             file(func(f *commit.File) { f.Path = c.Prefix + "x-evil-0.parquet" }),
			"its own files":           file(func(f *commit.File) { f.Attempt = "good" }),
			"data files are Parquet":  file(func(f *commit.File) { f.Format = "ORC" }),
			"a file isn't empty":      file(func(f *commit.File) { f.Size = 0 }),
			"schema":                  file(func(f *commit.File) { f.SchemaID = 7 }),
			"as many nulls as values": file(func(f *commit.File) { f.NullCounts = map[int]int64{1: 11} }),
			"fit together": file(func(f *commit.File) {
				f.Lower, f.Upper = map[int][]byte{1: {9, 0, 0, 0, 0, 0, 0, 0}}, map[int][]byte{1: {1, 0, 0, 0, 0, 0, 0, 0}}
			}),
		} {
			_, err := w.handIn(c.WriteID, "evil", f)
			wantFault(t, err, commit.CodeManifestRefused, want)
		}
		twice := fileOf(c, "evil")
		_, err := w.handIn(c.WriteID, "evil", twice, twice)
		wantFault(t, err, commit.CodeManifestRefused, "unique")
		for _, attempt := range []string{"", "a-b", "../x", strings.Repeat("a", 101), "a/b"} {
			_, err := w.handIn(c.WriteID, attempt, fileOf(c, attempt))
			wantFault(t, err, commit.CodeManifestRefused, "attempt's id")
		}
		for _, path := range [][]string{nil, {"x"}, {"firn.v1.other", c.WriteID, "a"}, {openwrite.DescriptorManifest, c.WriteID}} {
			rec, err := wire.EncodeManifest(nil)
			must(t, err)
			if _, err := w.put(path, rec); err == nil {
				t.Errorf("%v was taken", path)
			}
		}
		_, err = d.handIn("j-none", "a", fileOf(c, "a"))
		wantFault(t, err, commit.CodeWriteNotFound, "j-none")
	})
	t.Run("handles", func(t *testing.T) {
		foreign, err := d.handIn(other.WriteID, "good", fileOf(other, "good"))
		must(t, err)
		parsed, err := openwrite.ParseHandle(handle)
		must(t, err)
		parsed.Digest = strings.Repeat("0", 64)
		for _, bad := range []string{"", "nonsense", foreign, handle + " ", parsed.String()} {
			_, err := d.do(openwrite.ActionCommit, openwrite.Commit{Version: 1, WriteID: c.WriteID, Handles: []string{handle, bad}})
			wantFault(t, err, commit.CodeHandleVoid, "")
		}
	})
	t.Run("requests", func(t *testing.T) {
		for kind, body := range map[string]string{
			openwrite.ActionBegin: `{"version":1,"table":"mem.ns.t","branch":"dev"}`, openwrite.ActionCommit: `{"version":1}{}`, openwrite.ActionStatus: `{"version":3}`,
			openwrite.ActionAbort: `[]`, openwrite.ActionResume: `{"version":1}`, "firn.v1.Other": `{}`, openwrite.ActionRenew: `{"version":1,"write":"x"}`,
		} {
			_, err := d.do(kind, []byte(body))
			wantFault(t, err, commit.CodeBadRequest, "")
		}
		for _, b := range []openwrite.Begin{
			{Version: 1, Table: "mem.ns.t", Operation: "overwrite"},
			{Version: 1, Table: "mem.ns.t", DryRun: true, Key: "k"},
			{Version: 1, Table: "mem.ns.t", TTLSeconds: -1},
			{Version: 1, Table: "mem.ns.t", AfterDeadline: "pray"},
			{Version: 1},
		} {
			_, err := d.do(openwrite.ActionBegin, b)
			wantFault(t, err, commit.CodeBadRequest, "")
		}
	})
	if a := d.seal(c.WriteID, handle); a.Status.State != openwrite.StateCommitted || h.catalogs.table.Rows("main") != 10 {
		t.Errorf("%+v", a)
	}
}

// TestNoSecretsOfCatalogs: nothing that is told has the catalog's secret, nor has the
// journal.
func TestNoSecretsOfCatalogs(t *testing.T) {
	h := start(t, func(*Config) {})
	h.catalogs.set(func() {
		h.catalogs.storage = map[string]string{"s3.endpoint": "http://127.0.0.1:9", "s3.secret-access-key": canary, "token": canary}
	})
	d := h.driver()
	c := d.begin("k")
	handle := d.write(c, "a")
	renewed := d.must(openwrite.ActionRenew, ref(c.WriteID))
	sealed := d.seal(c.WriteID, handle)
	status := d.must(openwrite.ActionStatus, ref(c.WriteID))
	raw, err := json.Marshal([]any{c, renewed, sealed, status})
	must(t, err)
	if strings.Contains(string(raw), canary) {
		t.Errorf("told: %s", raw)
	}
	plan, err := h.s.journal.Plan(t.Context(), c.WriteID)
	must(t, err)
	if !strings.Contains(string(plan), c.Prefix) {
		t.Errorf("the plan on record: %s", plan)
	}
	plan = []byte(strings.ReplaceAll(string(plan), `"MetadataLocation":""`, ""))
	if strings.Contains(string(plan), canary) {
		t.Errorf("on record: %s", plan)
	}
}

// TestDryWrite: nothing is sealed or committed, and the report tells what would be.
func TestDryWrite(t *testing.T) {
	h := start(t, nil)
	d := h.driver()
	c := d.must(openwrite.ActionBegin, openwrite.Begin{Version: 1, Table: writeTable, DryRun: true}).Context
	a := d.seal(c.WriteID, d.write(c, "a"))
	if a.Status.State != openwrite.StateVerified || a.Status.Report.Rows != 10 || h.catalogs.table.Applied() != 0 {
		t.Errorf("%+v, %+v", a, a.Status.Report)
	}
	if _, err := h.s.journal.Unit(t.Context(), c.WriteID); !errors.Is(err, journal.ErrNotFound) {
		t.Errorf("a unit: %v", err)
	}
}

// A plan that a client makes can't pretend to be an external write, whose files nobody
// would have handed in.
func TestPlansHaveNoExternalWrites(t *testing.T) {
	h := start(t, nil)
	raw, err := plan.Encode(&plan.Commit{Input: &plan.External{Tasks: 1}, Target: plan.Pinned{Name: committest.Name}})
	must(t, err)
	_, err = h.execute(&firnpb.ExecuteRequest{Physical: raw})
	wantFault(t, err, commit.CodeBadPlan, "external write")
}

// TestRefusedManifestsTakeNoDisk: a worker that hands in again and again what isn't
// kept doesn't fill the disk of the journal.
func TestRefusedManifestsTakeNoDisk(t *testing.T) {
	h := start(t, func(c *Config) { c.Writes = writes.Config{MaxFiles: 12_000} })
	d := h.driver()
	c := d.begin("k")
	large := func(attempt string, n int) (all []commit.File) {
		for i := range n {
			f := fileOf(c, attempt)
			f.Path = fmt.Sprintf("%s%s-%050d.parquet", c.Prefix, attempt, i)
			all = append(all, f)
		}
		return all
	}
	taken := func() (files int, size int64) {
		must(t, filepath.WalkDir(h.dir, func(path string, e os.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			info, err := e.Info()
			if err == nil {
				size += info.Size()
			}
			if filepath.Ext(path) == ".arrow" {
				files++
			}
			return err
		}))
		return files, size
	}
	handle, err := d.handIn(c.WriteID, "a", large("a", 9000)...)
	must(t, err)
	files, size := taken()
	for range 5 {
		again, err := d.handIn(c.WriteID, "a", large("a", 9000)...)
		if must(t, err); again != handle {
			t.Errorf("another handle: %s", again)
		}
		_, err = d.handIn(c.WriteID, "a", large("a", 8000)...)
		wantFault(t, err, commit.CodeManifestRefused, "another one")
		_, err = d.handIn(c.WriteID, "b", large("b", 9000)...)
		wantFault(t, err, commit.CodeManifestRefused, "18000 files; 12000 are allowed")
	}
	if f, s := taken(); f != files || f != 1 || s != size {
		t.Errorf("%d files of manifests and %d bytes; there were %d and %d", f, s, files, size)
	}
}
