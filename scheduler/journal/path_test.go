package journal_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/scheduler/journal"
	"github.com/firn-project/firn/scheduler/journal/journaltest"
)

// A directory may have any name: the journal is in it, and not in a file that a part of
// the name stands for.
func TestJournalOfAnOddDirectory(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"a#b", "a?mode=memory", "a%20b", "a b", "ä;=&"} {
		dir := filepath.Join(root, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		j, err := journal.Open(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if found, err := filepath.Glob(filepath.Join(root, "*")); err != nil || len(found) == 0 {
			t.Fatal(found, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "journal.db")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if made, err := os.ReadDir(root); err != nil || len(made) != 5 {
		t.Errorf("%v, %v", made, err)
	}
}

// A manifest that isn't any more what was kept is an error, and at its end at the latest.
func TestDamagedManifest(t *testing.T) {
	dir := t.TempDir()
	j, err := journal.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if err := errors.Join(
		j.PutJob(t.Context(), journaltest.Job("j-1", "k")),
		j.Seal(t.Context(), journaltest.Unit("j-1", "k"), journaltest.Body(make([]byte, 2<<20))),
	); err != nil {
		t.Fatal(err)
	}
	kept, err := filepath.Glob(filepath.Join(dir, "manifests", "*.arrow"))
	if err != nil || len(kept) != 1 {
		t.Fatal(kept, err)
	}
	if err := os.WriteFile(kept[0], append(make([]byte, 2<<20-1), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := journaltest.Manifest(t.Context(), j, "j-1"); commit.CodeOf(err) != commit.CodeJournal {
		t.Errorf("%v", err)
	}
}

// A manifest is read up to the mark that ends its stream, and what is behind that by
// io.Copy: that it isn't what was kept shows there too.
func TestManifestDamagedBehindItsEnd(t *testing.T) {
	dir := t.TempDir()
	j, err := journal.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	var files []commit.File
	for i := range 20_000 {
		files = append(files, commit.File{Path: fmt.Sprintf("file:///t/%064d.parquet", i), Format: "PARQUET", Attempt: "a", Rows: 1, Size: 1})
	}
	rec, err := wire.EncodeManifest(files)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Release()
	body, err := wire.EncodeManifestIPC(rec)
	if err != nil {
		t.Fatal(err)
	}
	read := func() (n int, inStream, behind error) {
		r, err := j.OpenManifest(t.Context(), "j-1")
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		inStream = wire.EachFileIPC(r, func(commit.File) error { n++; return nil })
		_, behind = io.Copy(io.Discard, r)
		return n, inStream, behind
	}
	if err := errors.Join(
		j.PutJob(t.Context(), journaltest.Job("j-1", "k")),
		j.Seal(t.Context(), journaltest.Unit("j-1", "k"), journaltest.Body(body)),
	); err != nil {
		t.Fatal(err)
	}
	if n, inStream, behind := read(); n != len(files) || inStream != nil || behind != nil {
		t.Fatal(n, inStream, behind)
	}
	kept, err := filepath.Glob(filepath.Join(dir, "manifests", "*.arrow"))
	if err != nil || len(kept) != 1 {
		t.Fatal(kept, err)
	}
	if err := os.WriteFile(kept[0], append(body, 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, inStream, behind := read(); n != len(files) || inStream != nil || commit.CodeOf(behind) != commit.CodeJournal {
		t.Errorf("%d files, %v, %v", n, inStream, behind)
	}
}
