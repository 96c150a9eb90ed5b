package shuffle_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/executor/shuffle"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
)

// follow is the location of an output that may still be written.
func (e *executor) follow(output int) plan.ShuffleLocation {
	l := e.location(output)
	l.Follow = true
	l.Ticket = e.ticket(func(tk *firnpb.Ticket) { tk.Output, tk.Follow = uint32(output), true })
	return l
}

// nextRows reads a batch.
func nextRows(tb testing.TB, r *shuffle.Reader) []string {
	tb.Helper()
	b, err := r.Next(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	defer b.Release()
	return rows(tb, b)
}

func liveWriter(tb testing.TB, e *executor, opts shuffle.WriterOptions) *shuffle.Writer {
	tb.Helper()
	opts.Live = true
	w, err := e.store.NewWriter(attempt, schema, opts)
	if err != nil {
		tb.Fatal(err)
	}
	return w
}

func mustWrite(tb testing.TB, w *shuffle.Writer, from, to int) {
	tb.Helper()
	if err := w.Write(tb.Context(), batch(tb, from, to)); err != nil {
		tb.Fatal(err)
	}
}

// A reader that began before the writer gets each row once it is there, waits for the
// next, and ends with the writer; one that comes later gets the same.
func TestLiveOutputIsReadWhileItIsWritten(t *testing.T) {
	for _, compress := range []bool{false, true} {
		for _, remote := range []bool{false, true} {
			e := newExecutor(t, "e1")
			e.source.AlwaysRemote = remote
			early := e.source.Read(t.Context(), []plan.ShuffleLocation{e.follow(0)})
			ready := 0
			w := liveWriter(t, e, shuffle.WriterOptions{Compress: compress, Ready: func() { ready++ }})
			mustWrite(t, w, 0, 3)
			want := wantRows(t, 0, 3)
			if got := nextRows(t, early); !slices.Equal(got, want) {
				t.Fatalf("first are %v, want %v", got, want)
			}
			if ready != 1 {
				t.Fatalf("told %d times that there are rows", ready)
			}
			late := e.source.Read(t.Context(), []plan.ShuffleLocation{e.location(0)})
			if got := nextRows(t, late); !slices.Equal(got, want) {
				t.Fatalf("the late reader's first are %v", got)
			}
			for n := 3; n < 4000; n += 100 {
				mustWrite(t, w, n, n+100)
			}
			out, err := w.Commit(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			all := wantRows(t, 0, int(out[0].Rows))
			for _, r := range []*shuffle.Reader{early, late} {
				got := slices.Clone(want)
				for {
					b, err := r.Next(t.Context())
					if errors.Is(err, io.EOF) {
						break
					}
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, rows(t, b)...)
					b.Release()
				}
				r.Close()
				if !slices.Equal(got, all) {
					t.Errorf("%d rows, want %d", len(got), len(all))
				}
			}
			if got, _, err := read(t, e.source, e.location(0)); err != nil || !slices.Equal(got, all) || ready != 1 {
				t.Errorf("%d rows of the whole output, %v; told %d times", len(got), err, ready)
			}
		}
	}
}

// wantRows are the rows of batch.
func wantRows(tb testing.TB, from, to int) []string {
	return rows(tb, batch(tb, from, to))
}

func TestLiveOutputWithoutRowsEnds(t *testing.T) {
	for _, remote := range []bool{false, true} {
		e := newExecutor(t, "e1")
		e.source.AlwaysRemote = remote
		r := e.source.Read(t.Context(), []plan.ShuffleLocation{e.follow(0), e.follow(1)})
		w := liveWriter(t, e, shuffle.WriterOptions{Outputs: 2, Partition: shuffle.NewRoundRobin(2, 1)})
		mustWrite(t, w, 0, 3)
		if _, err := w.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := nextRows(t, r); !slices.Equal(got, wantRows(t, 0, 3)) {
			t.Errorf("rows are %v", got)
		}
		if _, err := r.Next(t.Context()); !errors.Is(err, io.EOF) {
			t.Errorf("after the last row: %v", err)
		}
		r.Close()
	}
}

// What is given up or freed while it is read is lost to its readers at once.
func TestLiveOutputThatIsGivenUpIsLost(t *testing.T) {
	for name, end := range map[string]func(*executor, *shuffle.Writer) error{
		"aborted": func(_ *executor, w *shuffle.Writer) error { w.Abort(); return nil },
		"freed":   func(e *executor, _ *shuffle.Writer) error { return e.store.Free(attempt.Job) },
		"cleared": func(e *executor, _ *shuffle.Writer) error { return e.store.Clear() },
	} {
		for _, remote := range []bool{false, true} {
			e := newExecutor(t, "e1")
			e.source.AlwaysRemote = remote
			w := liveWriter(t, e, shuffle.WriterOptions{})
			mustWrite(t, w, 0, 3)
			r := e.source.Read(t.Context(), []plan.ShuffleLocation{e.follow(0)})
			nextRows(t, r)
			if err := end(e, w); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Next(t.Context()); !isLost(err) {
				t.Errorf("%s, remote %v: %v", name, remote, err)
			}
			r.Close()
			w.Abort()
			// A client isn't kept waiting for what will not come back.
			if _, _, err := read(t, e.source, e.location(0)); !isLost(err) {
				t.Errorf("%s, remote %v: read afterwards: %v", name, remote, err)
			}
		}
	}
}

// Waiting ends with the reader, before the writer has begun and after.
func TestLiveReadersEndWithTheirContext(t *testing.T) {
	for _, begun := range []bool{false, true} {
		for _, remote := range []bool{false, true} {
			e := newExecutor(t, "e1")
			e.source.AlwaysRemote = remote
			ctx, cancel := context.WithCancel(t.Context())
			r := e.source.Read(ctx, []plan.ShuffleLocation{e.follow(0)})
			if begun {
				w := liveWriter(t, e, shuffle.WriterOptions{})
				defer w.Abort()
				mustWrite(t, w, 0, 3)
				nextRows(t, r)
			}
			cancel()
			if _, err := r.Next(t.Context()); !errors.Is(err, context.Canceled) {
				t.Errorf("begun %v, remote %v: %v", begun, remote, err)
			}
			r.Close()
		}
	}
}

// A writer whose readers are slow fills its file, not the memory, and no more of the
// disk than the quota: then it fails, and they with it.
func TestLiveOutputKeepsToTheQuota(t *testing.T) {
	e := newExecutor(t, "e1")
	store := shuffle.NewStore(t.TempDir(), 256<<10)
	e.source.Store = store
	w, err := store.NewWriter(attempt, schema, shuffle.WriterOptions{Live: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	r := e.source.Read(t.Context(), []plan.ShuffleLocation{e.follow(0)})
	defer r.Close()
	for n := 0; err == nil; n += 2000 {
		err = w.Write(t.Context(), batch(t, n, n+2000))
	}
	if commit.CodeOf(err) != commit.CodeShuffleFull {
		t.Fatal(err)
	}
	w.Abort()
	for err = nil; err == nil; {
		b, nerr := r.Next(t.Context())
		if err = nerr; b != nil {
			b.Release()
		}
	}
	if !isLost(err) {
		t.Error(err)
	}
}
