//go:build integration

package integration_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/integration/process"
)

// larder is a cluster of processes with a client for frames.
type larder struct {
	*lake
	scheduler *process.Server
	executors []*process.Server
	config    string
}

func startLarder(t *testing.T, dispatch string, executors int, settings string) *larder {
	t.Helper()
	dir := t.TempDir()
	l := &larder{config: filepath.Join(dir, "scheduler.yaml")}
	body := "dispatch: " + dispatch + "\nsources: {local: {allow: [/]}}\nexecutors: {heartbeat: 200ms, timeout: 2s}\n" + settings
	if err := os.WriteFile(l.config, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	l.scheduler = process.Start(t, "scheduler", "--listen", "127.0.0.1:0", "--dir", filepath.Join(dir, "scheduler"), "--config", l.config, "--log-level", "debug")
	for i := range executors {
		l.executors = append(l.executors, process.Start(t, "executor", "--server", l.scheduler.Address,
			"--dir", filepath.Join(dir, fmt.Sprintf("executor-%d", i)), "--slots", "2", "--memory", "512MB"))
	}
	for _, e := range l.executors {
		l.scheduler.AwaitLog(t, 0, `"msg":"executor registered"`, fmt.Sprint(e.Ready["id"]))
	}
	cl, err := client.Dial(t.Context(), l.scheduler.Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cl.Close(); err != nil {
			t.Error(err)
		}
	})
	l.lake = &lake{Client: cl, t: t, dir: dir}
	l.must("CREATE NAMESPACE lake.air")
	return l
}

// holder is an executor with pieces of a frame.
func (l *larder) holder(f *client.Frame) int {
	l.t.Helper()
	st, err := f.Status(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	for i, e := range l.executors {
		if len(st.Executors) > 0 && e.Ready["id"] == st.Executors[0] {
			return i
		}
	}
	l.t.Fatalf("no executor has anything of %+v", st)
	return 0
}

// rebuilds lists what the log says of builds of a frame after the first one.
func (l *larder) rebuilds(f *client.Frame) (lines []string) {
	for line := range strings.Lines(l.scheduler.Log()) {
		if strings.Contains(line, `"msg":"cached frame is built again"`) && strings.Contains(line, f.ID()) {
			lines = append(lines, line)
		}
	}
	return lines
}

// stored lists the shuffle files of jobs on all executors.
func (l *larder) stored(jobs ...string) (files []string) {
	l.t.Helper()
	err := filepath.WalkDir(l.dir, func(path string, d os.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && !d.IsDir() && strings.Contains(path, "/shuffle/") && slices.ContainsFunc(jobs, func(id string) bool { return strings.Contains(path, id) }) {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return files
}

// builds are the jobs that built a frame, as far as the scheduler's log tells.
func (l *larder) builds(f *client.Frame) []string {
	l.t.Helper()
	st, err := f.Status(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	jobs := []string{st.Job}
	for _, line := range l.rebuilds(f) {
		var entry struct {
			Job string `json:"job_id"`
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			l.t.Fatal(err)
		}
		jobs = append(jobs, entry.Job)
	}
	return jobs
}

// emptied waits until the executors have nothing of the jobs.
func (l *larder) emptied(jobs []string) {
	l.t.Helper()
	left := l.stored(jobs...)
	for deadline := time.Now().Add(20 * time.Second); len(left) > 0; <-time.After(10 * time.Millisecond) {
		if left = l.stored(jobs...); len(left) > 0 && time.Now().After(deadline) {
			l.t.Fatalf("left on executors: %v", left)
		}
	}
}

// hashes makes a file of 600,000 rows, more than executors keep in memory.
func hashes(t *testing.T) string {
	t.Helper()
	in := filepath.Join(t.TempDir(), "in.parquet")
	duck(t, fmt.Sprintf("COPY (SELECT i AS id, i %% 7 AS k, sha256(i::varchar) AS payload FROM range(600000) t(i)) TO '%s' (ROW_GROUP_SIZE 50000)", in))
	return "SELECT * FROM read_parquet('" + in + "')"
}

const sums = "SELECT k::varchar, count(*)::varchar, count(DISTINCT id)::varchar, sum(id)::varchar, min(payload), max(payload) FROM %s GROUP BY k ORDER BY k"

// A frame is read by SELECTs and an INSERT; then executors that hold parts of it are
// killed, also in the middle of a read, lose their files, are drained and stopped, and
// the scheduler is killed: its rows are the same each time, and only what was lost is
// built again. Released, nothing is left of it.
func TestFrameOutlivesItsExecutors(t *testing.T) {
	for _, dispatch := range []string{"push", "pull"} {
		t.Run(dispatch, func(t *testing.T) {
			l := startLarder(t, dispatch, 3, "")
			l.must("CREATE TABLE lake.air.t (id bigint, k bigint, payload string)")
			query := hashes(t)
			want := l.query(fmt.Sprintf(sums, "("+query+")"))
			f := l.cache(query)
			same := func(when string) {
				t.Helper()
				if got := l.query(fmt.Sprintf(sums, f.Name())); !reflect.DeepEqual(got, want) {
					t.Fatalf("%s: %v, want %v", when, got, want)
				}
			}
			lostOf := func(line string) (lost, pieces int) {
				t.Helper()
				if _, err := fmt.Sscanf(line[strings.Index(line, `"lost":`):], `"lost":%d,"pieces":%d`, &lost, &pieces); err != nil {
					t.Fatalf("%v in %s", err, line)
				}
				return lost, pieces
			}
			same("at first")
			same("again")
			l.must("INSERT INTO lake.air.t SELECT * FROM " + f.Name())
			if n := len(l.rebuilds(f)); n != 0 {
				t.Fatalf("it was built again %d times", n)
			}

			// Two statements at once share one build of what is lost.
			i := l.holder(f)
			l.executors[i].Kill()
			l.executors[i] = l.executors[i].Again(t)
			var both sync.WaitGroup
			for range 2 {
				both.Go(func() {
					if _, err := l.run(client.Statement{SQL: "SELECT max(payload) FROM " + f.Name()}); err != nil {
						t.Error(err)
					}
				})
			}
			both.Wait()
			same("after a kill")
			lines := l.rebuilds(f)
			if len(lines) != 1 {
				t.Fatalf("built again %d times: %v", len(lines), lines)
			}
			if lost, pieces := lostOf(lines[0]); lost == 0 || lost >= pieces {
				t.Errorf("%d of %d pieces were built again", lost, pieces)
			}

			// In the middle of reading.
			i = l.holder(f)
			mark := l.scheduler.Mark()
			done := make(chan error, 1)
			go func() {
				_, err := l.run(client.Statement{SQL: "INSERT INTO lake.air.t SELECT id + 600000, k, payload FROM " + f.Name()})
				done <- err
			}()
			l.scheduler.AwaitLog(t, mark, `"msg":"task launched"`, `"stage":1`)
			l.executors[i].Kill()
			l.executors[i] = l.executors[i].Again(t)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if got := l.query("SELECT count(*)::varchar, count(DISTINCT id)::varchar FROM lake.air.t")[0]; got[0] != "1200000" || got[1] != "1200000" {
				t.Fatalf("rows of the table: %v", got)
			}
			same("after a kill while it was read")

			// Somebody cleans a disk.
			before := len(l.rebuilds(f))
			for _, file := range l.stored(l.builds(f)...) {
				if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Fatal(err)
				}
			}
			same("after its files were deleted")
			if len(l.rebuilds(f)) == before {
				t.Error("nothing was built again")
			}

			// The scheduler starts again: the frame is there and nothing is built again.
			builds := l.builds(f)
			if len(l.stored(builds...)) == 0 {
				t.Fatal("the frame has no files")
			}
			l.scheduler.Kill()
			l.scheduler = l.scheduler.Again(t)
			same("after the scheduler's end")
			if again := l.rebuilds(f); len(again) != 0 {
				t.Errorf("built again without a loss: %v", again)
			}

			out := process.Run(t.Context(), t, "cache", "list", "--server", l.scheduler.Address, "-o", "json")
			if out.Code != 0 || !strings.Contains(out.Stdout, f.ID()) || !strings.Contains(out.Stdout, `"rows":600000`) {
				t.Errorf("exit code %d: %s%s", out.Code, out.Stdout, out.Stderr)
			}
			if out = process.Run(t.Context(), t, "cache", "release", f.ID(), "--server", l.scheduler.Address); out.Code != 0 {
				t.Errorf("exit code %d: %s", out.Code, out.Stderr)
			}
			if _, err := f.Status(t.Context()); commit.CodeOf(err) != commit.CodeFrameNotFound {
				t.Errorf("after its release: %v", err)
			}
			l.emptied(builds)
		})
	}
}

// An executor that holds only rows of cached frames can be drained, and what it had is
// built again elsewhere.
func TestExecutorsWithCachedRowsDrain(t *testing.T) {
	l := startLarder(t, "push", 2, "")
	f := l.cache(hashes(t))
	i := l.holder(f)
	id := fmt.Sprint(l.executors[i].Ready["id"])
	if r := process.Run(t.Context(), t, "executor", "drain", id, "--timeout", "20s", "--server", l.scheduler.Address); r.Code != 0 {
		t.Fatalf("drain: exit code %d, %s", r.Code, r.Stderr)
	}
	l.executors[i].Stop(t)
	l.scheduler.AwaitLog(t, 0, `"msg":"executor lost"`, id)
	st, err := f.Status(t.Context())
	if err != nil || st.State != "lost" || st.Lost == 0 || st.Lost >= st.Pieces {
		t.Errorf("%+v, %v", st, err)
	}
	if got := l.query("SELECT count(*)::varchar, count(DISTINCT payload)::varchar FROM " + f.Name())[0]; got[0] != "600000" || got[1] != "600000" {
		t.Errorf("%v", got)
	}
	if st, err = f.Status(t.Context()); err != nil || st.State != "ready" || st.Lost != 0 || len(st.Executors) != 1 {
		t.Errorf("%+v, %v", st, err)
	}
}

// A frame over a table is of the version that the table had: it is built again from
// that, whatever came since, and when that can't be read it says so.
func TestFrameOfAPinnedVersion(t *testing.T) {
	l := startLarder(t, "push", 2, "")
	l.must("CREATE TABLE lake.air.src (id bigint)", "INSERT INTO lake.air.src SELECT i FROM range(1000) t(i)")
	f := l.cache("SELECT id, id % 10 AS d FROM lake.air.src")
	whole := l.cache("SELECT random() AS r, id FROM lake.air.src")
	l.must("INSERT INTO lake.air.src SELECT i + 1000 FROM range(1000) t(i)")
	const sum = "SELECT count(*)::varchar, max(id)::varchar FROM "
	loseAll := func() {
		for i := range l.executors {
			mark := l.scheduler.Mark()
			l.executors[i].Kill()
			l.executors[i] = l.executors[i].Again(t)
			l.scheduler.AwaitLog(t, mark, `"msg":"executor registered"`)
		}
	}
	loseAll()
	for _, f := range []*client.Frame{f, whole} {
		if got := l.query(sum + f.Name())[0]; got[0] != "1000" || got[1] != "999" {
			t.Fatalf("built again: %v", got)
		}
	}
	if got := l.query(sum + "lake.air.src")[0]; got[0] != "2000" {
		t.Fatalf("the table: %v", got)
	}
	// All tasks read rows of the same run of a query that doesn't repeat.
	const xor = "SELECT bit_xor(hash(r))::varchar FROM "
	if a, b := l.query(xor+whole.Name()), l.query(xor+whole.Name()); !reflect.DeepEqual(a, b) {
		t.Errorf("%v, then %v", a, b)
	}
	loseAll()
	for _, file := range parquetFiles(t, l.dir) {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	_, err := l.run(client.Statement{SQL: sum + f.Name()})
	e, _ := errors.AsType[*commit.Error](err)
	if commit.CodeOf(err) != commit.CodeFrameLost || e == nil || !strings.Contains(err.Error(), ".parquet") || !strings.Contains(e.Hint, "cache the query again") {
		t.Errorf("without its source: %v", err)
	}
	if st, err := f.Status(t.Context()); err != nil || st.State != "lost" {
		t.Errorf("%+v, %v", st, err)
	}
}

// A file that isn't what it was is no source for lost rows.
func TestFrameOfAFileThatChanged(t *testing.T) {
	l := startLarder(t, "push", 1, "")
	in := filepath.Join(t.TempDir(), "in.parquet")
	write := func(rows int) {
		duck(t, fmt.Sprintf("COPY (SELECT i AS id FROM range(%d) t(i)) TO '%s'", rows, in))
	}
	write(1000)
	f := l.cache("SELECT id FROM read_parquet('" + in + "')")
	write(2000)
	mark := l.scheduler.Mark()
	l.executors[0].Kill()
	l.executors[0] = l.executors[0].Again(t)
	l.scheduler.AwaitLog(t, mark, `"msg":"executor registered"`)
	_, err := l.run(client.Statement{SQL: "SELECT count(*) FROM " + f.Name()})
	if commit.CodeOf(err) != commit.CodeFrameLost || !strings.Contains(err.Error(), "when the query was planned") {
		t.Errorf("got %v", err)
	}
}

// Limits hold, and a frame that nobody uses goes by itself.
func TestLimitsOfCachedFrames(t *testing.T) {
	l := startLarder(t, "push", 1, "cache: {ttl: 2s, frames: 2, bytes: 60MiB}\n")
	query := hashes(t)
	cache := func(sql string, ttl time.Duration) (*client.Frame, error) {
		return l.Cache(t.Context(), client.Statement{SQL: sql}, client.CacheOptions{TTL: ttl})
	}
	f, err := cache(query, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	jobs := l.builds(f)
	if _, err := cache(query, time.Hour); commit.CodeOf(err) != commit.CodeFrameLimit || !strings.Contains(err.Error(), "62914560 are allowed") {
		t.Errorf("too large: %v", err)
	}
	for err == nil {
		_, err = cache("SELECT 1 AS a", time.Hour)
	}
	if commit.CodeOf(err) != commit.CodeFrameLimit || !strings.Contains(err.Error(), "you have 2 cached frames") {
		t.Errorf("too many: %v", err)
	}
	if err := f.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.emptied(jobs)
	out := process.Run(t.Context(), t, "cache", "create", "SELECT 1 AS a", "--server", l.scheduler.Address, "-o", "json")
	var made struct {
		ID  string `json:"id"`
		TTL string `json:"ttl"`
	}
	if err := json.Unmarshal([]byte(out.Stdout), &made); err != nil || made.TTL != "2s" {
		t.Fatalf("%v: exit code %d: %s%s", err, out.Code, out.Stdout, out.Stderr)
	}
	f = l.Frame(made.ID)
	for err = nil; err == nil; _, err = f.Status(t.Context()) {
		<-time.After(50 * time.Millisecond)
	}
	if commit.CodeOf(err) != commit.CodeFrameNotFound || !strings.Contains(err.Error(), "nobody used it for 2s") {
		t.Errorf("after its time: %v", err)
	}
}
