package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
)

// Lack is an ability that a store is known not to have. The suite then checks what
// it does instead.
type Lack string

// HiddenUploads means that uploads are listed under their whole name only, as by MinIO, so
// that what a killed writer left can't be found by its prefix. Such a store drops
// them itself after a time.
const HiddenUploads Lack = "hidden uploads"

// Run checks a store under a URI prefix that ends in a slash and under which
// nothing is. big is an object size that the store writes in several steps.
func Run(t *testing.T, s objstore.Store, prefix string, big int, lacks ...Lack) {
	t.Helper()
	unfinished := testUnfinished
	if slices.Contains(lacks, HiddenUploads) {
		unfinished = testHiddenUploads
	}
	for name, f := range map[string]func(*testing.T, objstore.Store, string, int){
		"create":       testCreate,
		"exists":       testExists,
		"race":         testRace,
		"abort":        testAbort,
		"cancelled":    testCancelled,
		"read at":      testReadAt,
		"missing":      testMissing,
		"list":         testList,
		"odd names":    testOddNames,
		"unfinished":   unfinished,
		"bad location": testBadLocation,
	} {
		t.Run(name, func(t *testing.T) { f(t, s, prefix+strings.ReplaceAll(name, " ", "-")+"/", big) })
	}
}

func content(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(uint64(n), 7))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func get(t *testing.T, s objstore.Store, uri string) []byte {
	t.Helper()
	o, err := s.Open(t.Context(), uri)
	if err != nil {
		t.Fatalf("open %s: %v", uri, err)
	}
	defer func() { _ = o.Close() }()
	b, err := io.ReadAll(io.NewSectionReader(o, 0, o.Size()))
	if err != nil {
		t.Fatalf("read %s: %v", uri, err)
	}
	return b
}

func list(t *testing.T, s objstore.Store, prefix string) []string {
	t.Helper()
	var out []string
	for i, err := range s.List(t.Context(), prefix) {
		if err != nil {
			t.Fatalf("list %s: %v", prefix, err)
		}
		out = append(out, fmt.Sprintf("%s %d", i.URI, i.Size))
	}
	return out
}

func put(t *testing.T, s objstore.Store, uri string, b []byte) {
	t.Helper()
	w, err := s.Create(t.Context(), uri)
	if err != nil {
		t.Fatalf("create %s: %v", uri, err)
	}
	// Uneven pieces cross the boundaries of parts.
	for rest := b; len(rest) > 0; {
		n := min(len(rest), 1<<20+13)
		if _, err := w.Write(rest[:n]); err != nil {
			t.Fatalf("write %s: %v", uri, err)
		}
		rest = rest[n:]
	}
	if err := w.Commit(t.Context()); err != nil {
		t.Fatalf("commit %s: %v", uri, err)
	}
}

func testCreate(t *testing.T, s objstore.Store, prefix string, big int) {
	t.Helper()
	for _, n := range []int{0, 1, 1000, big, big + 17} {
		uri := fmt.Sprintf("%sa/b c/%d.bin", prefix, n)
		w, err := s.Create(t.Context(), uri)
		if err != nil {
			t.Fatal(err)
		}
		want := content(n)
		if _, err := w.Write(want); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Stat(t.Context(), uri); !errors.Is(err, objstore.ErrNotFound) {
			t.Errorf("%d bytes: before Commit: Stat gave %v, want ErrNotFound", n, err)
		}
		if got := list(t, s, uri); len(got) != 0 {
			t.Errorf("%d bytes: before Commit: List shows %v", n, got)
		}
		if err := w.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.Abort()
		if got := get(t, s, uri); !bytes.Equal(got, want) {
			t.Errorf("%d bytes: read %d others", n, len(got))
		}
		if size, err := s.Stat(t.Context(), uri); err != nil || size != int64(n) {
			t.Errorf("Stat = %d, %v; want %d", size, err, n)
		}
		if err := w.Commit(t.Context()); err == nil {
			t.Errorf("%d bytes: a second Commit succeeded", n)
		}
	}
}

func testExists(t *testing.T, s objstore.Store, prefix string, big int) {
	t.Helper()
	for _, n := range []int{10, big + 1} {
		uri := fmt.Sprintf("%s%d", prefix, n)
		put(t, s, uri, []byte("first"))
		w, err := s.Create(t.Context(), uri)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content(n)); err != nil {
			t.Fatal(err)
		}
		if err := w.Commit(t.Context()); !errors.Is(err, objstore.ErrExists) {
			t.Errorf("%d bytes over another object: Commit gave %v, want ErrExists", n, err)
		} else if !strings.Contains(err.Error(), uri) {
			t.Errorf("the error doesn't name the object: %v", err)
		}
		w.Abort()
		if err := s.PutIfAbsent(t.Context(), uri, []byte("second")); !errors.Is(err, objstore.ErrExists) {
			t.Errorf("PutIfAbsent over another object: %v, want ErrExists", err)
		}
		if got := get(t, s, uri); string(got) != "first" {
			t.Errorf("%d bytes: the first object is now %.20q", n, got)
		}
		if got := list(t, s, uri); len(got) != 1 {
			t.Errorf("left behind: %v", got)
		}
		if err := s.Delete(t.Context(), uri); err != nil {
			t.Fatal(err)
		}
		if err := s.PutIfAbsent(t.Context(), uri, []byte("third")); err != nil {
			t.Errorf("PutIfAbsent after Delete: %v", err)
		}
	}
}

func testRace(t *testing.T, s objstore.Store, prefix string, _ int) {
	t.Helper()
	const writers = 8
	for round := range 5 {
		uri := fmt.Sprintf("%s%d", prefix, round)
		var wg sync.WaitGroup
		errs := make([]error, writers)
		for i := range writers {
			wg.Go(func() { errs[i] = s.PutIfAbsent(t.Context(), uri, []byte{byte(i)}) })
		}
		wg.Wait()
		winner := -1
		for i, err := range errs {
			switch {
			case err == nil && winner >= 0:
				t.Errorf("round %d: both %d and %d won", round, winner, i)
			case err == nil:
				winner = i
			case !errors.Is(err, objstore.ErrExists):
				t.Errorf("round %d: %v", round, err)
			}
		}
		if winner < 0 {
			t.Fatalf("round %d: nobody won", round)
		}
		if got := get(t, s, uri); len(got) != 1 || got[0] != byte(winner) {
			t.Errorf("round %d: %d won, and the object is %v", round, winner, got)
		}
	}
}

func testAbort(t *testing.T, s objstore.Store, prefix string, big int) {
	t.Helper()
	for _, n := range []int{0, 10, big + 1} {
		uri := fmt.Sprintf("%s%d", prefix, n)
		w, err := s.Create(t.Context(), uri)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content(n)); err != nil {
			t.Fatal(err)
		}
		w.Abort()
		w.Abort()
		if err := w.Commit(t.Context()); err == nil {
			t.Error("Commit after Abort succeeded")
		}
		if got := list(t, s, prefix); len(got) != 0 {
			t.Errorf("left behind: %v", got)
		}
	}
}

func testCancelled(t *testing.T, s objstore.Store, prefix string, big int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w, err := s.Create(ctx, prefix+"x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(content(big + 1)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := w.Commit(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Commit under a cancelled context: %v", err)
	}
	w.Abort()
	if got := list(t, s, prefix); len(got) != 0 {
		t.Errorf("left behind: %v", got)
	}
	if _, err := s.Create(ctx, prefix+"y"); !errors.Is(err, context.Canceled) {
		t.Errorf("Create under a cancelled context: %v", err)
	}
	if err := s.PutIfAbsent(ctx, prefix+"y", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("PutIfAbsent under a cancelled context: %v", err)
	}
}

func testReadAt(t *testing.T, s objstore.Store, prefix string, _ int) {
	t.Helper()
	want := content(1000)
	put(t, s, prefix+"x", want)
	o, err := s.Open(t.Context(), prefix+"x")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = o.Close() }()
	for _, c := range []struct {
		off  int64
		n    int
		want []byte
		eof  bool
	}{
		{0, 10, want[:10], false},
		{990, 10, want[990:], false},
		{995, 10, want[995:], true},
		{1000, 1, nil, true},
		{2000, 1, nil, true},
		{500, 0, nil, false},
	} {
		b := make([]byte, c.n)
		n, err := o.ReadAt(b, c.off)
		if !bytes.Equal(b[:n], c.want) {
			t.Errorf("ReadAt(%d, %d) gave %d bytes, want %d", c.off, c.n, n, len(c.want))
		}
		// At the very end both io.EOF and nil are allowed by io.ReaderAt.
		if full := n == c.n; (err != nil && !errors.Is(err, io.EOF)) || (!full && err == nil) || (c.eof && err == nil) {
			t.Errorf("ReadAt(%d, %d): %v", c.off, c.n, err)
		}
	}
	if _, err := o.ReadAt(make([]byte, 1), -1); err == nil {
		t.Error("ReadAt(-1) succeeded")
	}
}

func testMissing(t *testing.T, s objstore.Store, prefix string, _ int) {
	t.Helper()
	for _, uri := range []string{prefix + "no", prefix + "no/such/thing"} {
		_, err := s.Open(t.Context(), uri)
		if !errors.Is(err, objstore.ErrNotFound) || !strings.Contains(err.Error(), uri) {
			t.Errorf("Open: %v", err)
		}
		if got := commit.KindOf(err); got != commit.KindNotFound {
			t.Errorf("Open: kind %s", got)
		}
		if _, err := s.Stat(t.Context(), uri); !errors.Is(err, objstore.ErrNotFound) {
			t.Errorf("Stat: %v", err)
		}
		if err := s.Delete(t.Context(), uri); err != nil {
			t.Errorf("Delete: %v", err)
		}
	}
	if got := list(t, s, prefix+"no/"); len(got) != 0 {
		t.Errorf("List: %v", got)
	}
}

func testList(t *testing.T, s objstore.Store, prefix string, _ int) {
	t.Helper()
	// Not every store gives them in the order of whole names, in which "a.b" stands
	// before "a/b".
	names := []string{"a-b", "a.b", "a/b", "a/c/d", "a0", "b"}
	for _, i := range rand.Perm(len(names)) {
		put(t, s, prefix+names[i], []byte(names[i]))
	}
	for _, c := range []struct {
		prefix string
		want   []string
	}{
		{"", names}, {"a", names[:5]}, {"a/", names[2:4]}, {"a/c", names[3:4]}, {"a/b", names[2:3]}, {"c", nil},
	} {
		var want []string
		for _, n := range c.want {
			want = append(want, fmt.Sprintf("%s%s %d", prefix, n, len(n)))
		}
		got := list(t, s, prefix+c.prefix)
		slices.Sort(got)
		slices.Sort(want)
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("List(%q) = %v, want %v", c.prefix, got, want)
		}
	}
	n := 0
	for _, err := range s.List(t.Context(), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		break
	}
	if n != 1 {
		t.Errorf("a listing that was broken off gave %d", n)
	}
}

func testOddNames(t *testing.T, s objstore.Store, prefix string, _ int) {
	t.Helper()
	for _, name := range []string{"k=a%2Fb/x.parquet", "k=ü 雪/x", "k=%25/x", "a+b&c", "dots..in/na..me"} {
		uri := prefix + name
		put(t, s, uri, []byte(name))
		if got := get(t, s, uri); string(got) != name {
			t.Errorf("%s: read %q", uri, got)
		}
		if got := list(t, s, uri); len(got) != 1 || !strings.HasPrefix(got[0], uri+" ") {
			t.Errorf("%s: listed as %v", uri, got)
		}
	}
}

func testBadLocation(t *testing.T, s objstore.Store, _ string, _ int) {
	t.Helper()
	for _, uri := range []string{"", "relative/x", "gs://bucket/x", "s3://", "s3://bucket", "file://relative/x"} {
		_, err := s.Open(t.Context(), uri)
		if code := commit.CodeOf(err); code != commit.CodeStorageLocation {
			t.Errorf("Open(%q): %v", uri, err)
		}
		if _, err := s.Create(t.Context(), uri); commit.CodeOf(err) != commit.CodeStorageLocation {
			t.Errorf("Create(%q): %v", uri, err)
		}
	}
}

// testHiddenUploads: where unfinished writes can't be found, none is broken.
func testHiddenUploads(t *testing.T, s objstore.Store, prefix string, big int) {
	w, err := s.Create(t.Context(), prefix+"job/half")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(content(big)); err != nil {
		t.Fatal(err)
	}
	if n, err := s.RemoveUnfinished(t.Context(), prefix+"job/"); err != nil || n != 0 {
		t.Errorf("removed %d things: %v", n, err)
	}
	if err := w.Commit(t.Context()); err != nil {
		t.Error(err)
	}
}

// testUnfinished: what a writer that never ended left goes, and nothing else.
func testUnfinished(t *testing.T, s objstore.Store, prefix string, big int) {
	for _, name := range []string{"job/whole", "job2/whole"} {
		if err := s.PutIfAbsent(t.Context(), prefix+name, []byte("1")); err != nil {
			t.Fatal(err)
		}
	}
	begin := func(name string) objstore.Writer {
		w, err := s.Create(t.Context(), prefix+name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content(big)); err != nil {
			t.Fatal(err)
		}
		return w
	}
	gone, stays := begin("job/p=1/half"), begin("job2/p=1/half")
	if n, err := s.RemoveUnfinished(t.Context(), prefix+"job/"); err != nil || n == 0 {
		t.Fatalf("removed %d things: %v", n, err)
	}
	if err := gone.Commit(t.Context()); err == nil {
		t.Error("an object appeared after what was written of it was removed")
	}
	if err := stays.Commit(t.Context()); err != nil {
		t.Errorf("a writer elsewhere: %v", err)
	}
	for _, name := range []string{"job/whole", "job2/whole"} {
		get(t, s, prefix+name)
	}
	if n, err := s.RemoveUnfinished(t.Context(), prefix+"job/"); err != nil || n != 0 {
		t.Errorf("the second time %d things were removed: %v", n, err)
	}
	if _, err := s.RemoveUnfinished(t.Context(), prefix+"job"); commit.CodeOf(err) != commit.CodeStorageLocation {
		t.Errorf("a prefix that isn't a directory: %v", err)
	}
	if n, err := s.RemoveUnfinished(t.Context(), prefix+"none/"); err != nil || n != 0 {
		t.Errorf("nothing there: %d, %v", n, err)
	}
}
