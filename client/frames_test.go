package client_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
)

// cacher is a scheduler that caches.
type cacher struct {
	*fake
	asked    *firnpb.CacheFrameRequest
	released string
	schema   []byte
}

func (f *cacher) CacheFrame(_ context.Context, r *firnpb.CacheFrameRequest) (*firnpb.CacheFrameResponse, error) {
	f.asked = r
	return &firnpb.CacheFrameResponse{FrameId: "f-1", Job: &firnpb.JobStatus{JobId: "j-1", State: "succeeded", Commit: "none", Revision: 1}}, nil
}

func (f *cacher) GetFrame(_ context.Context, r *firnpb.FrameRequest) (*firnpb.FrameStatus, error) {
	if r.GetFrameId() != "f-1" || f.released != "" {
		return nil, wire.ToStatus(&commit.Error{Code: commit.CodeFrameNotFound, Op: "look at cached frame", Object: r.GetFrameId()})
	}
	return f.frame(), nil
}

func (f *cacher) frame() *firnpb.FrameStatus {
	return &firnpb.FrameStatus{
		FrameId: "f-1", State: "ready", Sql: f.asked.GetStatement().GetSql(), JobId: "j-1", Pieces: 2, Lost: 1, Rows: 3, Bytes: 4, Executors: []string{"e-1"}, Users: 5,
		TtlMs: 6000, CreatedUnixMs: 1700000000000, ExpiresUnixMs: 1700000006000, Repeats: true, ResultSchema: f.schema,
	}
}

func (f *cacher) ListFrames(context.Context, *firnpb.ListFramesRequest) (*firnpb.ListFramesResponse, error) {
	return &firnpb.ListFramesResponse{Frames: []*firnpb.FrameStatus{f.frame()}}, nil
}

func (f *cacher) ReleaseFrame(_ context.Context, r *firnpb.FrameRequest) (*firnpb.FrameStatus, error) {
	f.released = r.GetFrameId()
	return f.frame(), nil
}

func TestCache(t *testing.T) {
	f := &cacher{fake: &fake{}}
	c := f.serveAs(t, f)
	ctx := t.Context()
	frame, err := c.Pipeline().ReadParquet("/a").SQL("SELECT x FROM input").With(client.Statement{TimeZone: "Europe/Paris"}).Cache(ctx, client.CacheOptions{TTL: 6 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	st := f.asked.GetStatement()
	if st.GetMode() != "cached" || st.GetTimeZone() != "Europe/Paris" || f.asked.GetTtlMs() != 6000 || st.GetIdempotencyKey() == "" || !st.GetKeyIsNew() ||
		st.GetSql() != "WITH input AS (\nSELECT * FROM read_parquet('/a')\n) SELECT * FROM (\nSELECT x FROM input\n)" {
		t.Errorf("asked for %v", f.asked)
	}
	got, err := frame.Status(ctx)
	want := client.FrameStatus{
		ID: "f-1", State: "ready", SQL: st.GetSql(), Job: "j-1", Pieces: 2, Lost: 1, Rows: 3, Bytes: 4, Executors: []string{"e-1"}, Users: 5, TTL: 6 * time.Second,
		Created: time.UnixMilli(1700000000000).UTC(), Expires: time.UnixMilli(1700000006000).UTC(), Repeats: true,
	}
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if all, err := c.Frames(ctx); err != nil || len(all) != 1 || !cmp.Equal(all[0], want) {
		t.Errorf("%+v, %v", all, err)
	}
	s, err := c.Pipeline().ReadFrame(frame).Write("lake.air.t").Append().Statement()
	if err != nil || s.SQL != `INSERT INTO "lake"."air"."t" SELECT * FROM firn_cache."f-1"` {
		t.Errorf("%s, %v", s.SQL, err)
	}
	if _, err := frame.Schema(ctx); commit.CodeOf(err) != commit.CodeFrameNotBuilt {
		t.Errorf("a schema that isn't known: %v", err)
	}
	f.schema, err = wire.EncodeIPC(ints(1).Schema())
	if err != nil {
		t.Fatal(err)
	}
	if schema, err := frame.Schema(ctx); err != nil || !schema.Equal(ints(1).Schema()) {
		t.Errorf("%v, %v", schema, err)
	}
	if err := frame.Release(ctx); err != nil || f.released != "f-1" {
		t.Errorf("released %q, %v", f.released, err)
	}
	if _, err := frame.Status(ctx); commit.CodeOf(err) != commit.CodeFrameNotFound {
		t.Errorf("after its release: %v", err)
	}
	for name, p := range map[string]*client.Pipeline{
		"no source": c.Pipeline(), "a table": c.Pipeline().SQL("SELECT 1").Write("t"), "a mistake before": c.Pipeline().ReadParquet(),
	} {
		if _, err := p.Cache(ctx, client.CacheOptions{}); commit.CodeOf(err) != commit.CodeBadCall {
			t.Errorf("%s: %v", name, err)
		}
	}
}
