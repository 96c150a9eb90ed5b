package delta

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

const bigFiles = 1_000_000

// BenchmarkOpen opens a table of a million files, for an append and for all its
// files: with a checkpoint of Firn's own, and with one in a single row group, as
// Spark writes it. Each time is in a fresh process.
func BenchmarkOpen(b *testing.B) {
	for _, single := range []bool{false, true} {
		tt := newTestTable(b, nil)
		tt.put(1, Commit{Adds: []*Add{plainAdd("tail")}})
		s := tt.snapshot(0)
		f, err := os.Create(tt.path(checkpointName(1)))
		if err != nil {
			b.Fatal(err)
		}
		rows := checkpointGroup
		if single {
			rows = 2 * bigFiles
		}
		err = writeGroups(f, nil, rows, !single, func(yield func(Action, error) bool) {
			if !yield(Action{Protocol: s.protocol}, nil) || !yield(Action{Metadata: s.metadata}, nil) {
				return
			}
			for i := range bigFiles {
				day := fmt.Sprintf("2024-01-%02d", i%28+1)
				a := &Add{
					Path: "p=" + day + "/part-00000-" + uuid.NewString() + ".zstd.parquet", PartitionValues: map[string]*string{"p": &day}, Size: int64(i), ModificationTime: 1,
					DataChange: true, Stats: fmt.Sprintf(`{"numRecords":%d,"minValues":{"v":%d},"maxValues":{"v":%d},"nullCount":{"v":0}}`, i, i, i*7),
				}
				if !yield(Action{Add: a}, nil) {
					return
				}
			}
		})
		if err != nil {
			b.Fatal(err)
		}
		size, err := f.Seek(0, 2)
		if err != nil {
			b.Fatal(err)
		}
		if err := f.Close(); err != nil {
			b.Fatal(err)
		}
		tt.write(hintName, `{"version":1,"size":1000002}`)
		for _, what := range []string{"append", "files"} {
			b.Run(map[bool]string{false: "groups", true: "single"}[single]+"/"+what, func(b *testing.B) {
				for b.Loop() {
					cmd := exec.CommandContext(b.Context(), os.Args[0], "-test.run", "^TestOpenAlone$", "-test.v")
					cmd.Env = append(os.Environ(), openDir+"="+tt.dir, openFor+"="+what)
					out, err := cmd.CombinedOutput()
					at := bytes.Index(out, []byte(openSays))
					var ms, mb float64
					if err == nil && at >= 0 {
						_, err = fmt.Sscanf(string(out[at:]), openSays+openNumbers, &ms, &mb)
					}
					if err != nil || at < 0 {
						b.Fatalf("%v: %s", err, out)
					}
					b.ReportMetric(ms, "open-ms")
					b.ReportMetric(mb, "peak-MB")
					b.ReportMetric(float64(size)/1e6, "checkpoint-MB")
				}
			})
		}
	}
}

// What BenchmarkOpen tells its process, and what that one says.
const (
	openDir, openFor      = "FIRN_OPEN_DIR", "FIRN_OPEN_FOR"
	openSays, openNumbers = "opened in ", "%f ms, peak %f MB"
)

// TestOpenAlone is the process that BenchmarkOpen starts to open its table: the
// peak of resident memory is that of a process that does nothing else.
func TestOpenAlone(t *testing.T) {
	dir := os.Getenv(openDir)
	if dir == "" {
		t.Skip("BenchmarkOpen runs it")
	}
	start := time.Now()
	s, err := localLog(dir).Snapshot(t.Context(), Latest)
	if err != nil {
		t.Fatal(err)
	}
	if s.seg.checkpoint == nil {
		t.Fatal("the checkpoint wasn't used")
	}
	if os.Getenv(openFor) == "files" {
		n := 0
		for _, err := range s.Files(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != bigFiles {
			t.Errorf("%d files", n)
		}
	}
	took := time.Since(start)
	t.Logf(openSays+openNumbers, float64(took.Microseconds())/1e3, peak(t))
}

// peak is the largest resident size that the process has had, in MB; zero where the
// system doesn't tell.
func peak(t *testing.T) (mb float64) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Log(err)
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if n, _ := fmt.Sscanf(line, "VmHWM: %f kB", &mb); n == 1 {
			return mb / 1e3
		}
	}
	return 0
}
