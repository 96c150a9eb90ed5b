package scheduler

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/firn-project/firn/commit/committest"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
)

// FuzzCalls: whatever clients and executors send, the scheduler answers and goes
// on.
func FuzzCalls(f *testing.F) {
	catalogs := &fakeCatalogs{table: committest.NewCatalog(committest.Mode{})}
	s, err := New(Config{
		Dir: f.TempDir(), Catalogs: catalogs, StoreKeys: fakeMinter{}, HeartbeatInterval: 20 * time.Millisecond, ExecutorTimeout: time.Second, ExecutorWait: time.Millisecond,
		CloseTimeout: time.Second, bindStatement: bindFake(catalogs), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		f.Fatal(err)
	}
	if err := s.Start(f.Context()); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Close(ctx) // jobs may be open: their input was noise
	})
	calls := []struct {
		request proto.Message
		call    func(context.Context, proto.Message)
	}{
		{&firnpb.RegisterRequest{ProtocolVersion: wire.ProtocolVersion, ExecutorId: "e", Incarnation: "i", Slots: 1, ControlAddress: "127.0.0.1:1", FlightAddress: "127.0.0.1:1"}, func(ctx context.Context, m proto.Message) {
			_, _ = s.Register(ctx, m.(*firnpb.RegisterRequest))
		}},
		{&firnpb.HeartbeatRequest{ExecutorId: "e", Incarnation: "i", RunningAttempts: []string{"a"}}, func(ctx context.Context, m proto.Message) {
			_, _ = s.Heartbeat(ctx, m.(*firnpb.HeartbeatRequest))
		}},
		{&firnpb.PollWorkRequest{ExecutorId: "e", Incarnation: "i", FreeSlots: 1, WaitMs: 1}, func(ctx context.Context, m proto.Message) {
			_, _ = s.PollWork(ctx, m.(*firnpb.PollWorkRequest))
		}},
		{&firnpb.ReportStatusRequest{ExecutorId: "e", Incarnation: "i", Statuses: []*firnpb.TaskStatus{{JobId: "j", AttemptId: "a", State: "succeeded"}}}, func(ctx context.Context, m proto.Message) {
			_, _ = s.ReportStatus(ctx, m.(*firnpb.ReportStatusRequest))
		}},
		{&firnpb.StoreKeysRequest{ExecutorId: "e", Incarnation: "i", JobId: "j", Credential: "w0", ExpiredKey: "k"}, func(ctx context.Context, m proto.Message) {
			if got, err := s.StoreKeys(ctx, m.(*firnpb.StoreKeysRequest)); err == nil && got.GetAccessKeyId()+got.GetSecretAccessKey()+got.GetSessionToken() != "" {
				panic("keys were given to an executor that runs nothing")
			}
		}},
		{&firnpb.ExecuteRequest{ProtocolVersion: wire.ProtocolVersion, Sql: "SELECT 1"}, func(ctx context.Context, m proto.Message) {
			_, _ = s.Execute(ctx, m.(*firnpb.ExecuteRequest))
		}},
		{&firnpb.JobRequest{JobId: "j"}, func(ctx context.Context, m proto.Message) {
			_, _ = s.GetJob(ctx, m.(*firnpb.JobRequest))
			_, _ = s.CancelJob(ctx, m.(*firnpb.JobRequest))
		}},
		{&firnpb.ListJobsRequest{Limit: 1}, func(ctx context.Context, m proto.Message) {
			_, _ = s.ListJobs(ctx, m.(*firnpb.ListJobsRequest))
		}},
		{&firnpb.OpenUploadRequest{ArrowSchema: []byte("x")}, func(ctx context.Context, m proto.Message) {
			_, _ = s.OpenUpload(ctx, m.(*firnpb.OpenUploadRequest))
			_, _ = uploadColumns(m.(*firnpb.OpenUploadRequest).GetArrowSchema())
		}},
		{&firnpb.CacheFrameRequest{Statement: &firnpb.ExecuteRequest{ProtocolVersion: wire.ProtocolVersion, Sql: "SELECT 1"}, TtlMs: 1}, func(ctx context.Context, m proto.Message) {
			_, _ = s.CacheFrame(ctx, m.(*firnpb.CacheFrameRequest))
		}},
		{&firnpb.FrameRequest{FrameId: "f"}, func(ctx context.Context, m proto.Message) {
			_, _ = s.GetFrame(ctx, m.(*firnpb.FrameRequest))
			_, _ = s.ReleaseFrame(ctx, m.(*firnpb.FrameRequest))
			_, _ = s.ListFrames(ctx, &firnpb.ListFramesRequest{})
		}},
		{&firnpb.ListExecutorsRequest{}, func(ctx context.Context, m proto.Message) {
			_, _ = s.ListExecutors(ctx, m.(*firnpb.ListExecutorsRequest))
		}},
		{&firnpb.DrainExecutorRequest{}, func(ctx context.Context, m proto.Message) {
			_, _ = s.DrainExecutor(ctx, m.(*firnpb.DrainExecutorRequest))
		}},
		{&firnpb.ListUnitsRequest{All: true}, func(ctx context.Context, m proto.Message) {
			_, _ = s.ListUnits(ctx, m.(*firnpb.ListUnitsRequest))
		}},
		{&firnpb.DriveUnitRequest{JobId: "j", Action: "retry"}, func(ctx context.Context, m proto.Message) {
			_, _ = s.DriveUnit(ctx, m.(*firnpb.DriveUnitRequest))
		}},
	}
	for i, c := range calls {
		raw, err := proto.Marshal(c.request)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), raw)
	}
	f.Fuzz(func(t *testing.T, which uint8, raw []byte) {
		c := calls[int(which)%len(calls)]
		m := c.request.ProtoReflect().New().Interface()
		if proto.Unmarshal(raw, m) != nil {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		c.call(ctx, m)
	})
}
