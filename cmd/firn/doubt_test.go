package main

import (
	"bytes"
	"net"
	"strings"
	"testing"
	"time"
)

// hangUp is a server that takes connections, reads of each what a client says
// first, and ends it.
func hangUp(t *testing.T, after time.Duration) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			// Settings, and nothing more: the client takes the server for ready.
			_, _ = conn.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0})
			_ = conn.SetReadDeadline(time.Now().Add(after))
			for b := make([]byte, 4096); err == nil; {
				_, err = conn.Read(b)
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}

// A connection that is lost while the scheduler may have the statement leaves the
// outcome unknown, and the answer names the key to ask with.
func TestALostSchedulerIsNoRefusal(t *testing.T) {
	addr := hangUp(t, 300*time.Millisecond)
	for _, tt := range []struct {
		sql  string
		code int
	}{{"INSERT INTO lake.a.t VALUES (1)", 7}, {"SELECT 1", 1}} {
		var out, errs bytes.Buffer
		code := run([]string{"sql", "-q", "--server", addr, "-c", tt.sql}, strings.NewReader(""), &out, &errs)
		if code != tt.code || tt.code == 7 && !strings.Contains(errs.String(), "--idempotency-key 0") {
			t.Errorf("%s: exit code %d, want %d\n%s", tt.sql, code, tt.code, errs.String())
		}
	}
}
