package deltatest

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/DataDog/zstd"
)

// Unpack writes the files of each .tar.zst archive of a directory below another,
// which is made, and fails the test unless there are any.
func Unpack(t testing.TB, archives, dir string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(archives, "*.tar.zst"))
	if err != nil || len(all) == 0 {
		t.Fatalf("no archives in %s: %v", archives, err)
	}
	for _, a := range all {
		if err := unpack(a, dir); err != nil {
			t.Fatalf("%s: %v", a, err)
		}
	}
}

func unpack(archive, dir string) (err error) {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	z := zstd.NewReader(f)
	defer func() { err = errors.Join(err, z.Close(), f.Close()) }()
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg || !filepath.IsLocal(h.Name) {
			continue
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		b, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			return err
		}
	}
}
