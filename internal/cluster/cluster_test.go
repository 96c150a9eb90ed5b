package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/firn-project/firn/commit"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("CLUSTER_TEST_HOLD"); dir != "" {
		hold(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// hold is another process that holds the directory until its stdin ends.
func hold(dir string) {
	lock, err := lockDir(dir)
	if err != nil {
		os.Exit(1)
	}
	defer lock.Close()
	fmt.Println("held")
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the test closes it
}

func TestStartAndClose(t *testing.T) {
	dir := t.TempDir()
	for range 2 { // the second time finds what the first left
		c, err := Start(t.Context(), Config{Dir: dir, Executors: 2, SlotsPerExecutor: 1, Memory: 256 << 20})
		if err != nil {
			t.Fatal(err)
		}
		if c.Addr() == "" || len(c.ExecutorAddrs()) != 2 || c.ExecutorAddrs()[0] == c.ExecutorAddrs()[1] {
			t.Errorf("addresses %s, %v", c.Addr(), c.ExecutorAddrs())
		}
		if _, err := Start(t.Context(), Config{Dir: dir}); commit.CodeOf(err) != commit.CodeDirInUse ||
			!strings.Contains(err.Error(), fmt.Sprintf("process %d since ", os.Getpid())) {
			t.Errorf("a second cluster in the directory: %v", err)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAClusterWithoutExecutors(t *testing.T) {
	c, err := Start(t.Context(), Config{Dir: t.TempDir(), Executors: NoExecutors})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.ExecutorAddrs()) != 0 {
		t.Errorf("executors %v", c.ExecutorAddrs())
	}
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestBadConfigurationIsNamed(t *testing.T) {
	for want, cfg := range map[string]Config{
		"Dir is empty":    {},
		"Executors is 65": {Dir: "x", Executors: 65},
		"Executors is -2": {Dir: "x", Executors: -2},
		"\"throw\"":       {Dir: t.TempDir(), Dispatch: "throw"},
		"\"guess\"":       {Dir: t.TempDir(), Planning: "guess"},
		"not a directory": {Dir: filepath.Join(file(t), "below")},
		"listen":          {Dir: t.TempDir(), Listen: "127.0.0.1:99999"},
	} {
		c, err := Start(t.Context(), cfg)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if err == nil {
			_ = c.Close(context.Background()) // the test has failed already
		}
	}
}

// TestAFailedStartReleasesTheDirectory: what was opened before the failure is
// closed again.
func TestAFailedStartReleasesTheDirectory(t *testing.T) {
	dir := t.TempDir()
	if _, err := Start(t.Context(), Config{Dir: dir, Dispatch: "throw"}); err == nil {
		t.Fatal("want an error")
	}
	lock, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Close(); err != nil {
		t.Error(err)
	}
}

func TestTheLockIsBetweenProcessesAndEndsWithThem(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CLUSTER_TEST_HOLD="+dir)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := stdout.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := lockDir(dir); commit.CodeOf(err) != commit.CodeDirInUse || !strings.Contains(err.Error(), fmt.Sprint(cmd.Process.Pid)) {
		t.Errorf("got %v, want process %d", err, cmd.Process.Pid)
	}
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Close(); err != nil {
		t.Error(err)
	}
}

func TestDefaultMemory(t *testing.T) {
	if got := DefaultMemory(); got < 64<<20 || got > 1<<44 {
		t.Errorf("%d bytes", got)
	}
}

func file(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
