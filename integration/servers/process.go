package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// startTimeout is how long a server may take to answer; a JVM on a busy
	// machine takes 10 s.
	startTimeout = 90 * time.Second
	stopTimeout  = 20 * time.Second
)

// server is a running process.
type server struct {
	name string
	cmd  *exec.Cmd
	log  buffer
	done chan struct{}
}

// buffer keeps what a process prints.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) tail() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	const most = 16 << 10
	return string(b.b.Bytes()[max(0, b.b.Len()-most):])
}

// start runs a command, and stops it with stop when the test ends. Its own
// environment is small: nothing of the tester's keys or proxies gets to a server.
func start(t testing.TB, name string, stop os.Signal, cmd *exec.Cmd) *server {
	t.Helper()
	s := &server{name: name, cmd: cmd, done: make(chan struct{})}
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + cmd.Dir, "LC_ALL=C", "AWS_EC2_METADATA_DISABLED=true"}, cmd.Env...)
	cmd.Stderr = &s.log
	if cmd.Stdout == nil {
		cmd.Stdout = &s.log
	}
	endWithParent(cmd)
	started := make(chan error)
	go func() {
		// The kernel ends the child with the thread that made it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
			close(s.done)
		}
	}()
	if err := <-started; err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	t.Cleanup(func() {
		s.stop(t, stop)
		if t.Failed() {
			t.Logf("log of %s:\n%s", name, s.log.tail())
		}
	})
	return s
}

func (s *server) stop(t testing.TB, sig os.Signal) {
	_ = s.cmd.Process.Signal(sig)
	select {
	case <-s.done:
	case <-time.After(stopTimeout):
		// Others wrote it: that it hangs at its end says nothing of what is tested.
		t.Logf("%s, pid %d, did not stop within %v and is killed", s.name, s.cmd.Process.Pid, stopTimeout)
		_ = s.cmd.Process.Kill()
		<-s.done
	}
}

// await asks until ready gives no error; a server that ends or takes too long
// fails the test.
func (s *server) await(t testing.TB, ready func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return
		}
		select {
		case <-s.done:
			t.Fatalf("%s ended: %v\n%s", s.name, s.cmd.ProcessState, s.log.tail())
		case <-ctx.Done():
			t.Fatalf("%s isn't ready: %v\n%s", s.name, err, s.log.tail())
		case <-tick.C:
		}
	}
}

// answers gives a check that a URL answers 200.
func answers(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		transport := &http.Transport{DisableKeepAlives: true}
		res, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, res.Body)
		err = errors.Join(err, res.Body.Close())
		if res.StatusCode != http.StatusOK {
			err = errors.Join(err, fmt.Errorf("%s answers %s", url, res.Status))
		}
		return err
	}
}

// The ports that servers get lie below those that systems hand out by themselves,
// to connections too: such a one could be taken between its finding and the server's
// start.
const firstPort, endPort = 20000, 32000

// freePorts finds ports of 127.0.0.1 that nobody listens on.
func freePorts(t testing.TB, n int) []int {
	t.Helper()
	ports := make([]int, 0, n)
	for tries := 0; len(ports) < n; tries++ {
		port := firstPort + rand.IntN(endPort-firstPort)
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			if tries > endPort-firstPort {
				t.Fatalf("no port is free: %v", err)
			}
			continue
		}
		// Held until all are found, so that none is found twice.
		defer func() { _ = l.Close() }()
		ports = append(ports, port)
	}
	return ports
}

// tempDir is a directory that other users may pass through, unlike t.TempDir.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "firn-servers-") //nolint:usetesting // which makes a directory for us alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove a server's data: %v", err)
		}
	})
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// interrupt is the signal that the servers take as the wish to stop.
const interrupt = syscall.SIGTERM
