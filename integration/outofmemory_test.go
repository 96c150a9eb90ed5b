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

// bound lets a process have so many bytes more of address space than it has now: what
// it wants beyond that the system refuses.
func bound(t *testing.T, s *process.Server, more int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", s.PID()))
	if err != nil {
		t.Fatal(err)
	}
	var pages int64
	if _, err := fmt.Sscan(string(text), &pages); err != nil {
		t.Fatal(err)
	}
	limit := pages*int64(os.Getpagesize()) + more
	if out, err := exec.CommandContext(t.Context(), "prlimit", "--pid", fmt.Sprint(s.PID()), fmt.Sprintf("--as=%d:%d", limit, limit)).CombinedOutput(); err != nil {
		process.NotHad(t, "prlimit", "prlimit --as", fmt.Sprintf("%v: %s", err, out))
	}
}

// hungry needs some hundred MiB for its 10,000 rows.
const hungry = `INSERT INTO lake.air.t SELECT max(i), length(string_agg(s, '')) FROM
	(SELECT i, md5(i::varchar) || md5((i + 1)::varchar) AS s FROM range(2000000) r(i) ORDER BY s) GROUP BY i % 10000`

// TestExecutorsWithoutMemory: the system refuses an executor the memory that its task
// wants, or kills it in the middle of the task, as the kernel does when there is none
// left. The job succeeds on another executor, with each row once.
func TestExecutorsWithoutMemory(t *testing.T) {
	for _, c := range []string{"refused", "killed"} {
		t.Run(c, func(t *testing.T) {
			l := startProcesses(t, "push", 0)
			executor := func(name, slots string) *process.Server {
				return process.Start(t, "executor", "--server", l.scheduler.Address, "--dir", filepath.Join(l.dir, name), "--slots", slots, "--memory", "2GiB")
			}
			tight := executor("tight", "4") // tasks go to it first
			executor("roomy", "1")
			l.Exec(nil, "CREATE TABLE lake.air.t (n bigint, s bigint)")
			if c == "refused" {
				bound(t, tight, 100<<20)
			}
			mark := l.scheduler.Mark()
			done := l.launch(hungry, "k")
			l.scheduler.AwaitLog(t, mark, `"msg":"task launched"`, fmt.Sprint(tight.Ready["id"]))
			if c == "killed" {
				tight.Kill()
			}
			r := <-done
			if r.Code != 0 {
				t.Fatalf("exit code %d: %s", r.Code, r.Stderr)
			}
			if w := written(t, r); w.Commit != "committed" || w.Rows != 10_000 {
				t.Fatalf("%+v", w)
			}
			// A library that doesn't look at what it was given crashes instead.
			refused := strings.Contains(tight.Log(), "FIRN-4512")
			lost := strings.Contains(l.scheduler.Log(), `"msg":"executor lost"`)
			if t.Logf("an error: %v, lost: %v", refused, lost); !refused && !lost || c == "killed" && refused {
				t.Error("the executor had the memory that it wanted: the test shows nothing")
			}
			if f := l.files("n"); f.Rows != 10_000 || f.Distinct != 10_000 {
				t.Errorf("PyIceberg reads %+v", f)
			}
		})
	}
}
