//go:build integration

package integration_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/firn-project/firn/integration/process"
)

// TestFullDisk fills a small disk with a job: it fails with an error that says so,
// the table stays as it was, the job's files are gone, and the same servers take
// the next write.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", dir).CombinedOutput(); err != nil {
		process.NotHad(t, "small-disk", "mount -t tmpfs", fmt.Sprintf("%v: %s", err, strings.TrimSpace(string(out))))
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	scheduler := process.Start(t, "scheduler", "--listen", "127.0.0.1:0", "--dir", dir)
	process.Start(t, "executor", "--server", scheduler.Address, "--dir", filepath.Join(t.TempDir(), "executor"))
	c := process.NewClient(t, "--server", scheduler.Address)
	c.Exec(nil, "CREATE NAMESPACE lake.disk")
	c.Exec(nil, "CREATE TABLE lake.disk.t (id bigint, s varchar) TBLPROPERTIES ('write.parquet.compression-codec' = 'uncompressed')")
	c.Exec(nil, "INSERT INTO lake.disk.t VALUES (1, 'a')")

	r := process.Run(t.Context(), t, "sql", "--server", scheduler.Address, "-o", "json", "-c",
		"INSERT INTO lake.disk.t SELECT i, md5(i::varchar) || sha256(i::varchar) FROM range(600000) r(i)")
	if text := r.Stdout + r.Stderr; r.Code != 1 || !strings.Contains(text, "no space left on device") || !strings.Contains(text, "Free some space") {
		t.Errorf("exit code %d, want 1 and the full disk as the reason:\n%s", r.Code, text)
	}
	var n []struct{ N int }
	c.Exec(&n, "SELECT count(*) AS n FROM lake.disk.t")
	if len(n) != 1 || n[0].N != 1 {
		t.Errorf("the table has %v rows, want 1", n)
	}
	var files int
	err := filepath.WalkDir(filepath.Join(dir, "warehouse"), func(path string, _ os.DirEntry, err error) error {
		if strings.Contains(path, ".parquet") {
			files++
		}
		return err
	})
	if err != nil || files != 1 {
		t.Errorf("%d data files are left, want 1; %v", files, err)
	}
	c.Exec(nil, "INSERT INTO lake.disk.t VALUES (2, 'b')")
	c.Exec(&n, "SELECT count(*) AS n FROM lake.disk.t")
	if len(n) != 1 || n[0].N != 2 {
		t.Errorf("after the next write the table has %v rows, want 2", n)
	}
}
