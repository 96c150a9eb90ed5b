package lazyfile_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/firn-project/firn/internal/lazyfile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// object is a source that remembers what was asked of it.
type object struct {
	content []byte
	mu      sync.Mutex
	asked   [][2]int64
	sent    int64
	fail    error
	// held, unless nil, holds reads until the object is closed.
	held chan struct{}
	once sync.Once
}

func newObject(n int) *object {
	o := &object{content: make([]byte, n)}
	for i := range o.content {
		o.content[i] = byte(i*31 + i>>8)
	}
	return o
}

func (o *object) Size() int64 { return int64(len(o.content)) }

func (o *object) Close() error {
	o.once.Do(func() {
		if o.held != nil {
			close(o.held)
		}
	})
	return nil
}

func (o *object) ReadAt(p []byte, off int64) (int, error) {
	if o.held != nil {
		<-o.held
		return 0, context.Canceled
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fail != nil {
		return 0, o.fail
	}
	n, err := bytes.NewReader(o.content).ReadAt(p, off)
	o.asked = append(o.asked, [2]int64{off, off + int64(n)})
	o.sent += int64(n)
	return n, err
}

func newFile(t testing.TB, o *object, quota int64) *lazyfile.File {
	t.Helper()
	f, err := lazyfile.New(t.Context(), filepath.Join(t.TempDir(), "f"), o, lazyfile.NewQuota(quota))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// Whatever is read in whatever order, the bytes are the source's, and none is
// fetched twice while there's room to keep them.
func TestReads(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := newObject(rapid.IntRange(1, 2000).Draw(rt, "size"))
		quota := int64(rapid.SampledFrom([]int{0, 100, 1000}).Draw(rt, "quota"))
		f := newFile(t, o, quota)
		defer func() { _ = f.Close() }()
		var parts []lazyfile.Part
		at := int64(rapid.IntRange(0, 20).Draw(rt, "head"))
		for g := 0; at < o.Size(); g++ {
			n := min(int64(rapid.IntRange(1, 300).Draw(rt, "part")), o.Size()-at)
			parts = append(parts, lazyfile.Part{Start: at, End: at + n, Group: g / 2, Column: g % 2})
			at += n + int64(rapid.IntRange(0, 3).Draw(rt, "gap"))
		}
		f.SetParts(parts)
		var wg sync.WaitGroup
		for range rapid.IntRange(1, 20).Draw(rt, "reads") {
			off := rapid.Int64Range(0, o.Size()).Draw(rt, "off")
			p := make([]byte, rapid.IntRange(1, 400).Draw(rt, "n"))
			wg.Go(func() {
				n, err := f.ReadAt(p, off)
				want := o.content[off:min(off+int64(len(p)), o.Size())]
				if !bytes.Equal(p[:n], want) || (err != nil && !errors.Is(err, io.EOF)) || (n < len(p)) != errors.Is(err, io.EOF) {
					t.Errorf("ReadAt(%d, %d) gave %d bytes, %v", len(p), off, n, err)
				}
			})
		}
		wg.Wait()
		if quota == 0 && o.sent > o.Size() {
			rt.Errorf("%d bytes were fetched of %d", o.sent, o.Size())
		}
	})
}

// A chunk is fetched whole, and nothing else.
func TestFetchesWholeParts(t *testing.T) {
	o := newObject(1000)
	f := newFile(t, o, 0)
	f.SetParts([]lazyfile.Part{{Start: 500, End: 600, Column: 1}, {Start: 100, End: 400}})
	for _, off := range []int64{150, 300, 101} {
		if _, err := f.ReadAt(make([]byte, 10), off); err != nil {
			t.Fatal(err)
		}
	}
	if len(o.asked) != 1 || o.asked[0] != [2]int64{100, 400} {
		t.Errorf("asked for %v", o.asked)
	}
}

// The columns that were read in one group are fetched together in the next one, and
// a long run foresees one group.
func TestFetchesAhead(t *testing.T) {
	const groups, columns, n = 20, 3, 10
	o := newObject(groups * columns * n)
	f := newFile(t, o, 0)
	var parts []lazyfile.Part
	for i := range int64(groups * columns) {
		parts = append(parts, lazyfile.Part{Start: i * n, End: i*n + n, Group: int(i / columns), Column: int(i % columns)})
	}
	f.SetParts(parts)
	read := func(group, column int) {
		if _, err := f.ReadAt(make([]byte, 1), int64(group*columns+column)*n); err != nil {
			t.Fatal(err)
		}
	}
	read(0, 0)
	read(0, 2)
	read(1, 0)
	f.Wait()
	if o.sent != 4*n {
		t.Errorf("%d bytes: the second column of the second group wasn't foreseen, or more was", o.sent)
	}
	for g := 1; g < 8; g++ {
		read(g, 0)
		read(g, 2)
	}
	f.Wait()
	if o.sent != 8*2*n {
		t.Errorf("%d bytes after 8 groups of 2 columns", o.sent)
	}
	read(8, 0)
	f.Wait()
	if o.sent != (9*2+1)*n {
		t.Errorf("%d bytes: the tenth group wasn't foreseen", o.sent)
	}
}

// What the quota has no room for is read again each time, and only as much of it as
// is asked for.
func TestQuota(t *testing.T) {
	o := newObject(600)
	f := newFile(t, o, 300)
	f.SetParts([]lazyfile.Part{{Start: 0, End: 200}, {Start: 200, End: 400, Group: 1}, {Start: 400, End: 600, Group: 2}})
	for round, want := range []int64{200 + 10 + 10, 10 + 10} {
		o.sent = 0
		for off := int64(0); off < 600; off += 200 {
			if _, err := f.ReadAt(make([]byte, 10), off); err != nil {
				t.Fatal(err)
			}
		}
		f.Wait()
		if o.sent != want {
			t.Errorf("round %d fetched %d bytes, want %d", round, o.sent, want)
		}
	}
}

func TestErrorsAreKept(t *testing.T) {
	o := newObject(100)
	f := newFile(t, o, 0)
	o.fail = errors.New("the store is gone")
	if _, err := f.ReadAt(make([]byte, 10), 0); !errors.Is(err, o.fail) || !errors.Is(f.Err(), o.fail) {
		t.Errorf("%v, %v", err, f.Err())
	}
}

// A read that hangs ends with its file.
func TestCloseEndsReads(t *testing.T) {
	o := newObject(100)
	o.held = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	f, err := lazyfile.New(ctx, filepath.Join(t.TempDir(), "f"), o, lazyfile.NewQuota(0))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		_, err := f.ReadAt(make([]byte, 10), 0)
		done <- err
	}()
	cancel()
	if err := <-done; err == nil {
		t.Error("no error")
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if n, err := f.ReadAt(make([]byte, 10), 0); err == nil {
		t.Errorf("%d bytes were read of a closed file", n)
	}
}
