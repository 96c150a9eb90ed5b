package scheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/firn-project/firn/internal/wire/firnpb"
)

// toldExecutor notes the calls to an executor; the first waits until it may go on.
type toldExecutor struct {
	firnpb.ExecutorServiceClient
	begun, goOn chan struct{}
	mu          sync.Mutex
	calls       []string
}

func (e *toldExecutor) note(call string) {
	e.mu.Lock()
	first := len(e.calls) == 0
	e.calls = append(e.calls, call)
	e.mu.Unlock()
	if first {
		close(e.begun)
		<-e.goOn
	}
}

func (e *toldExecutor) LaunchTasks(_ context.Context, r *firnpb.LaunchTasksRequest, _ ...grpc.CallOption) (*firnpb.LaunchTasksResponse, error) {
	call := "launch"
	for _, t := range r.GetTasks() {
		call += " " + t.GetAttemptId()
	}
	e.note(call)
	return &firnpb.LaunchTasksResponse{}, nil
}

func (e *toldExecutor) CancelTasks(_ context.Context, r *firnpb.CancelTasksRequest, _ ...grpc.CallOption) (*firnpb.CancelTasksResponse, error) {
	e.note("cancel " + strings.Join(r.GetAttemptIds(), " "))
	return &firnpb.CancelTasksResponse{}, nil
}

func (e *toldExecutor) FreeJobData(_ context.Context, r *firnpb.FreeJobDataRequest, _ ...grpc.CallOption) (*firnpb.FreeJobDataResponse, error) {
	e.note(strings.TrimSpace(fmt.Sprint("free ", strings.Join(append([]string{r.GetJobId()}, r.GetMoreJobs()...), " "), r.GetStages())))
	return &firnpb.FreeJobDataResponse{}, nil
}

// What waits for a call goes out together, and nothing overtakes what it ends.
func TestOutboxSendsTogetherAndInOrder(t *testing.T) {
	told := &toldExecutor{begun: make(chan struct{}), goOn: make(chan struct{})}
	s := &Scheduler{cfg: Config{ExecutorTimeout: time.Minute}, loop: newMailbox(nil)}
	defer s.loop.close()
	o := newOutbox(s, &executor{rpc: told, life: t.Context()})
	task := func(id string) []*firnpb.TaskDefinition { return []*firnpb.TaskDefinition{{AttemptId: id}} }
	o.launch(task("a-0"))
	receive(t, told.begun, "the first call")
	o.free("j-0", nil)
	o.launch(task("a-1"))
	o.launch(task("a-2"))
	o.cancel("a-2")
	o.free("j-2", nil)
	o.free("j-1", []int{0, 1})
	o.launch(task("a-3"))
	close(told.goOn)
	o.close()
	at := func(call string) int {
		i := slices.Index(told.calls, call)
		if i < 0 {
			t.Fatalf("no %q among %q", call, told.calls)
		}
		return i
	}
	if together := at("launch a-1 a-2 a-3"); together > at("cancel a-2") {
		t.Errorf("the cancel came before its launch: %q", told.calls)
	}
	var freed []string
	for i, c := range told.calls {
		if !strings.HasPrefix(c, "free") {
			continue
		}
		freed = append(freed, c)
		if strings.Contains(c, "j-2") && i < at("cancel a-2") {
			t.Errorf("a job's data was freed before its attempt was stopped: %q", told.calls)
		}
	}
	all := strings.Join(freed, ", ")
	for _, job := range []string{"j-0", "j-1[0 1]", "j-2"} {
		if strings.Count(all, job) != 1 {
			t.Errorf("freed %q, want %s once", freed, job)
		}
	}
}
