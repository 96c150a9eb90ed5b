package committer_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
	"github.com/firn-project/firn/scheduler/committer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRunCommitsOnce(t *testing.T) {
	l := newLab(t, nil)
	var phases []string
	r := l.root("j1", "k")
	r.OnPhase = func(p string) { phases = append(phases, p) }
	r.Expected = &committer.Counts{Files: 1, Rows: 2}
	rep, err := l.com.Run(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if rep.State != commit.CommitCommitted || rep.JobID != "j1" || rep.Key != "k" || rep.Rows != 2 || rep.Files != 1 || rep.Bytes != 102 ||
		rep.SnapshotID != l.c.Head("main") || rep.Attempts != 1 || rep.Deduplicated || rep.CommittedAt.IsZero() ||
		rep.Table.String() != committest.Name.String() || rep.Format != "iceberg" || rep.Operation != commit.OperationAppend {
		t.Errorf("report %+v", rep)
	}
	if want := []string{"reading", "verifying", "queued", "committing"}; !slices.Equal(phases, want) {
		t.Errorf("phases %v, want %v", phases, want)
	}

	again, err := l.com.Run(t.Context(), l.root("j2", "k"))
	if err != nil || !again.Deduplicated || !again.OtherSubmission || again.SnapshotID != rep.SnapshotID || again.Rows != 2 || again.Attempts != 0 {
		t.Errorf("report %+v %v", again, err)
	}
	if l.c.Applied() != 1 {
		t.Errorf("%d commits", l.c.Applied())
	}
}

func TestRunReadsBeforeItSends(t *testing.T) {
	l := newLab(t, nil)
	lost := errors.New("lost input")
	r := l.root("j1", "k")
	good := r.Read
	r.Read = func(ctx context.Context, into *commit.Packer) error {
		if err := good(ctx, into); err != nil {
			return err
		}
		return lost
	}
	rep, err := l.com.Run(t.Context(), r)
	if !errors.Is(err, lost) || commit.CodeOf(err) != commit.CodeCommitInput || rep.State != commit.CommitNone || l.c.Sends() != 0 {
		t.Errorf("%+v %v after %d sends", rep, err, l.c.Sends())
	}
}

func TestRunVerifies(t *testing.T) {
	l := newLab(t, nil)
	for name, change := range map[string]func(*committer.Root){
		"loser's file": func(r *committer.Root) { r.Attempts = []string{"a-other"} },
		"prefix":       func(r *committer.Root) { r.Plan.Prefix = "mem://t/data/other/" },
		"schema": func(r *committer.Root) {
			r.Plan.Target.SchemaJSON = []byte(strings.Replace(schemaJSON, ":0,", ":7,", 1))
		},
		"lost file": func(r *committer.Root) { r.Expected = &committer.Counts{Files: 2, Rows: 2} },
		"lost row":  func(r *committer.Root) { r.Expected = &committer.Counts{Files: 1, Rows: 3} },
		"bounds": func(r *committer.Root) {
			r.Read = spoiled(r.Read, func(f *commit.File) {
				f.Lower, f.Upper = map[int][]byte{1: {9, 0, 0, 0, 0, 0, 0, 0}}, map[int][]byte{1: {8, 0, 0, 0, 0, 0, 0, 0}}
			})
		},
		"partition": func(r *committer.Root) {
			r.Read = spoiled(r.Read, func(f *commit.File) { f.Partition = []commit.PartitionValue{{FieldID: 1000, Null: true}} })
		},
		"lost task": func(r *committer.Root) { r.Tasks = 2 },
	} {
		r := l.root("j1", "k")
		change(&r)
		rep, err := l.com.Run(t.Context(), r)
		if commit.ReasonOf(err) != commit.ReasonValidation || rep.State != commit.CommitRefused {
			t.Errorf("%s: %+v %v", name, rep, err)
		}
	}
	if l.c.Sends() != 0 {
		t.Errorf("%d sends", l.c.Sends())
	}
	for name, change := range map[string]func(*committer.Root){
		"no plan":  func(r *committer.Root) { r.Plan = nil },
		"format":   func(r *committer.Root) { r.Plan.Target.Format = "paimon" },
		"no input": func(r *committer.Root) { r.Read = nil },
		"bad plan": func(r *committer.Root) { r.Plan.Target.SpecJSON = []byte("{") },
		"panic": func(r *committer.Root) {
			r.Read = func(context.Context, *commit.Packer) error { panic("x") }
		},
	} {
		r := l.root("j1", "k")
		change(&r)
		if _, err := l.com.Run(t.Context(), r); commit.CodeOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBeforeSendIsThePointOfNoReturn(t *testing.T) {
	l := newLab(t, nil)
	cancelled := errors.New("cancelled")
	r := l.root("j1", "k")
	r.BeforeSend = func() error { return cancelled }
	rep, err := l.com.Run(t.Context(), r)
	if !errors.Is(err, cancelled) || commit.KindOf(err) != commit.KindCancelled || rep.State != commit.CommitNone {
		t.Errorf("%+v %v", rep, err)
	}
	if l.c.Sends() != 0 || len(l.c.MetadataFiles()) != 0 {
		t.Errorf("%d sends, %v left behind", l.c.Sends(), l.c.MetadataFiles())
	}

	// It's asked once, however many requests there are.
	asked := 0
	r = l.root("j1", "k")
	r.BeforeSend = func() error { asked++; return nil }
	conflicts := 3
	l.hook(func(_ context.Context, effect string) {
		if effect == "send" && conflicts > 0 {
			conflicts--
			l.c.Foreign("main")
		}
	})
	if rep, err := l.com.Run(t.Context(), r); err != nil || rep.Attempts != 4 || rep.Conflicts != 3 || asked != 1 {
		t.Errorf("%+v %v, asked %d times", rep, err, asked)
	}
}

func TestCancelBeforeTheSend(t *testing.T) {
	for _, at := range []string{"manifests", "read", "build"} {
		l := newLab(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		r := l.root("j1", "k")
		if at == "manifests" {
			r.Read = func(context.Context, *commit.Packer) error { cancel(); return nil }
		}
		l.hook(func(_ context.Context, effect string) {
			if effect == at {
				cancel()
			}
		})
		rep, err := l.com.Run(ctx, r)
		if commit.KindOf(err) != commit.KindCancelled || !errors.Is(err, context.Canceled) || rep.State != commit.CommitNone || l.c.Sends() != 0 {
			t.Errorf("cancel at %s: %+v %v", at, rep, err)
		}
		cancel()
	}
}

func TestCancelAfterTheSendChangesNothing(t *testing.T) {
	for _, fault := range []string{"pass", "drop-reply", "500", "409"} {
		l := newLab(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		d := committest.NewDriver(l.c)
		if err := d.Inject(fault); err != nil {
			t.Fatal(err)
		}
		l.driver = d
		l.hook(func(effect context.Context, what string) {
			if what == "send" {
				cancel()
				if effect.Err() != nil {
					t.Error("the send's context ended with the caller's")
				}
			}
		})
		rep, err := l.com.Run(ctx, l.root("j1", "k"))
		if err != nil || rep.State != commit.CommitCommitted {
			t.Errorf("%s: %+v %v", fault, rep, err)
		}
	}
}

func TestTableChangedNamesTheCommands(t *testing.T) {
	l := newLab(t, nil)
	r := l.root("j1", "k")
	l.c.Drop()
	l.c.Recreate()
	rep, err := l.com.Run(t.Context(), r)
	var e *commit.Error
	if !errors.As(err, &e) || e.Reason != commit.ReasonTableChanged || rep.State != commit.CommitRefused {
		t.Fatalf("%+v %v", rep, err)
	}
	for _, want := range []string{"firn commit retry j1 [--table NAME]", "firn commit drop j1", r.Plan.Prefix} {
		if !strings.Contains(e.Hint+e.Tried, want) {
			t.Errorf("%q / %q lacks %q", e.Tried, e.Hint, want)
		}
	}
}

func TestOpenGoesByTheRulesOfARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lab{t: t, c: committest.NewCatalog(committest.Mode{})}
		fails, failure := 3, errors.New("catalog is down")
		com := committer.New(committer.Config{Open: func(context.Context, commit.TableName) (commit.Table, error) {
			if fails--; fails >= 0 {
				return nil, failure
			}
			return committest.NewDriver(l.c), nil
		}})
		defer com.Close(t.Context())
		if rep, err := com.Run(t.Context(), l.root("j1", "k")); err != nil || rep.State != commit.CommitCommitted {
			t.Errorf("%+v %v", rep, err)
		}
		<-time.After(2 * time.Minute) // the table is closed when it is idle
		fails, failure = 1<<30, commit.ErrTableNotFound
		if _, err := com.Run(t.Context(), l.root("j2", "k2")); commit.ReasonOf(err) != commit.ReasonTableChanged {
			t.Errorf("%v", err)
		}
	})
}

func TestDeadlineEndsAsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, func(c *committer.Config) { c.Deadline = time.Minute; c.MaxAttempts = 3 })
		d := committest.NewDriver(l.c)
		if err := d.Inject("late", "drop-request", "drop-request"); err != nil {
			t.Fatal(err)
		}
		l.driver = d
		start := time.Now()
		rep, err := l.com.Run(t.Context(), l.root("j1", "k"))
		if rep.State != commit.CommitUnknown || commit.KindOf(err) != commit.KindUnknown || rep.Attempts != 3 {
			t.Errorf("%+v %v", rep, err)
		}
		if took := time.Since(start); took < time.Minute || took > 2*time.Minute {
			t.Errorf("told after %s", took)
		}
		// The same key finds what landed in the end.
		if l.c.Deliver() != 1 {
			t.Fatal("the late copy must land")
		}
		if rep, err := l.com.Run(t.Context(), l.root("j2", "k")); err != nil || !rep.Deduplicated || l.c.Applied() != 1 {
			t.Errorf("%+v %v", rep, err)
		}
	})
}

func TestOneTableOneUnitAtATime(t *testing.T) {
	l := newLab(t, nil)
	var mu sync.Mutex
	inside, most := map[string]int{}, 0
	l.opened = func(tb commit.Table) commit.Table {
		return hooked{tb, func(_ context.Context, effect string) {
			mu.Lock()
			defer mu.Unlock()
			switch effect {
			case "build":
				inside["t"]++
				most = max(most, inside["t"])
			case "send":
				inside["t"]--
			}
		}}
	}
	var wg sync.WaitGroup
	for n := range 20 {
		job := "j" + string(rune('a'+n))
		r := l.root(job, job)
		wg.Go(func() {
			if rep, err := l.com.Run(t.Context(), r); err != nil || rep.Attempts != 1 || rep.Conflicts != 0 {
				t.Errorf("%+v %v: units of one process must not compete", rep, err)
			}
		})
	}
	wg.Wait()
	if most != 1 || l.c.Rows("main") != 40 {
		t.Errorf("%d at once, %d rows", most, l.c.Rows("main"))
	}
}

func TestAQueuedUnitCanLeave(t *testing.T) {
	l := newLab(t, nil)
	held, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	l.hook(func(_ context.Context, effect string) {
		if effect == "send" {
			once.Do(func() { close(held); <-release })
		}
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := l.com.Run(t.Context(), l.root("j1", "k1")); err != nil {
			t.Error(err)
		}
	})
	<-held
	ctx, cancel := context.WithCancel(t.Context())
	r := l.root("j2", "k2")
	r.OnPhase = func(p string) {
		if p == committer.PhaseQueued {
			cancel()
		}
	}
	// It comes back though the table's owner is held up.
	if rep, err := l.com.Run(ctx, r); commit.KindOf(err) != commit.KindCancelled || rep.State != commit.CommitNone {
		t.Errorf("%+v %v", rep, err)
	}
	close(release)
	wg.Wait()
	if l.c.Applied() != 1 {
		t.Errorf("%d commits", l.c.Applied())
	}
}

func TestCloseFinishesWhatWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, nil)
		d := committest.NewDriver(l.c)
		if err := d.Inject("500", "500"); err != nil {
			t.Fatal(err)
		}
		l.driver = d
		held, release := make(chan struct{}), make(chan struct{})
		var once sync.Once
		l.hook(func(_ context.Context, effect string) {
			if effect == "send" {
				once.Do(func() { close(held); <-release })
			}
		})
		var wg sync.WaitGroup
		wg.Go(func() {
			if rep, err := l.com.Run(t.Context(), l.root("j1", "k1")); err != nil || rep.Attempts != 3 {
				t.Errorf("the sent one: %+v %v", rep, err)
			}
		})
		<-held
		wg.Go(func() {
			if _, err := l.com.Run(t.Context(), l.root("j2", "k2")); commit.KindOf(err) != commit.KindCancelled {
				t.Errorf("the queued one: %v", err)
			}
		})
		synctest.Wait()
		closed := make(chan struct{})
		go func() { l.com.Close(t.Context()); close(closed) }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("closed while a commit was in flight")
		default:
		}
		close(release)
		<-closed
		wg.Wait()
		if _, err := l.com.Run(t.Context(), l.root("j3", "k3")); commit.KindOf(err) != commit.KindCancelled {
			t.Errorf("after Close: %v", err)
		}
	})
}

// A catalog that doesn't answer holds nobody up for ever: when the time to close
// is over, what was sent is unknown, at once.
func TestCloseGivesUpInTime(t *testing.T) {
	for _, at := range []string{"send", "read"} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rec := &recorder{}
				l := newLab(t, func(c *committer.Config) { c.Recorder = rec })
				d := committest.NewDriver(l.c)
				if err := d.Inject("late"); err != nil {
					t.Fatal(err)
				}
				l.driver = d
				sent := false
				l.hook(func(ctx context.Context, effect string) {
					sent = sent || effect == "send"
					if sent && effect == at {
						<-ctx.Done() // hangs
					}
				})
				done := make(chan struct{})
				go func() {
					defer close(done)
					if rep, err := l.com.Run(t.Context(), l.root("j1", "k1")); rep.State != commit.CommitUnknown || commit.KindOf(err) != commit.KindUnknown {
						t.Errorf("%+v %v", rep, err)
					}
				}()
				synctest.Wait()
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				l.com.Close(ctx)
				<-done
				if took := time.Since(began); took < 5*time.Second || took > 8*time.Second {
					t.Errorf("Close took %v of 5 s", took)
				}
				if last := rec.log[len(rec.log)-1]; last != "unknown" {
					t.Errorf("the journal's last word is %q", last)
				}
			})
		})
	}
}

func TestPanicsInTheDriver(t *testing.T) {
	for at, want := range map[string]commit.CommitState{
		"read": commit.CommitRefused, "build": commit.CommitRefused, "send": commit.CommitUnknown,
	} {
		l := newLab(t, nil)
		l.hook(func(_ context.Context, effect string) {
			if effect == at {
				panic("driver broke")
			}
		})
		rep, err := l.com.Run(t.Context(), l.root("j1", "k"))
		if rep.State != want || err == nil || !strings.Contains(err.Error(), "driver broke") {
			t.Errorf("panic at %s: %+v %v", at, rep, err)
		}
		l.opened = nil // the table's owner lives on
		if rep, err := l.com.Run(t.Context(), l.root("j2", "k")); err != nil || rep.State != commit.CommitCommitted {
			t.Errorf("after a panic at %s: %+v %v", at, rep, err)
		}
	}
}

func TestADrivenAgainUnitKnowsItsSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, func(c *committer.Config) { c.Deadline = time.Minute })
		d := committest.NewDriver(l.c)
		m, err := d.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r := l.root("j1", "k")
		u := committest.NewUnit(l.c, "k", "j1", 1, 2)
		sent, err := d.Build(t.Context(), m, []commit.Unit{u})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Inject("late"); err != nil {
			t.Fatal(err)
		}
		d.Send(t.Context(), sent)
		l.c.DropColumn() // the unit doesn't fit any more
		sent.Payload = nil
		r.Sent = []commit.Request{sent}
		r.BeforeSend = func() error { t.Error("asked for a unit that was sent before"); return nil }
		if rep, err := l.com.Run(t.Context(), r); rep.State != commit.CommitUnknown || commit.KindOf(err) != commit.KindUnknown {
			t.Errorf("%+v %v, though the old copy is under way", rep, err)
		}
		l.c.Foreign("main")
		if rep, err := l.com.Run(t.Context(), r); rep.State != commit.CommitRefused || commit.ReasonOf(err) != commit.ReasonTableChanged {
			t.Errorf("%+v %v", rep, err)
		}
		if l.c.Deliver() != 0 || len(l.c.MetadataFiles()) != 0 {
			t.Errorf("the refused unit landed, or left %v", l.c.MetadataFiles())
		}
	})
}

func TestRecordsComeBeforeWhatTheyGuard(t *testing.T) {
	rec := &recorder{fail: map[string]int{"send": 1, "committed": 1}}
	l := newLab(t, func(c *committer.Config) { c.Recorder = rec })
	l.hook(func(_ context.Context, effect string) { rec.log = append(rec.log, "> "+effect) })
	rep, err := l.com.Run(t.Context(), l.root("j1", "k"))
	if err != nil || rep.State != commit.CommitCommitted || l.c.Sends() != 1 {
		t.Errorf("%+v %v: a failed record of the outcome changes nothing", rep, err)
	}
	want := []string{"seal", "> read", "> build", "send", "> read", "> build", "send", "> send", "> read", "committed"}
	if !slices.Equal(rec.log, want) {
		t.Errorf("%v\nwant %v", rec.log, want)
	}

	rec.fail["seal"] = 1
	if rep, err := l.com.Run(t.Context(), l.root("j2", "k2")); err == nil || rep.State != commit.CommitNone || l.c.Sends() != 1 {
		t.Errorf("a unit that isn't sealed was sent: %+v %v", rep, err)
	}
}
