package delta

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// BenchmarkOpen opens a table of a million files for an append: with a checkpoint
// of Firn's own, and with one in a single row group, as Spark writes it.
//
//	go test ./catalog/delta -run XXX -bench Open -benchtime 5x
func BenchmarkOpen(b *testing.B) {
	const files = 1_000_000
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
			rows = 2 * files
		}
		err = writeGroups(f, nil, rows, !single, func(yield func(Action, error) bool) {
			if !yield(Action{Protocol: s.protocol}, nil) || !yield(Action{Metadata: s.metadata}, nil) {
				return
			}
			for i := range files {
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
		name := map[bool]string{false: "groups", true: "single"}[single]
		b.Run(name+"/append", func(b *testing.B) {
			for b.Loop() {
				if s := tt.snapshot(Latest); s.seg.checkpoint == nil {
					b.Fatal("the checkpoint wasn't used")
				}
			}
			peak(b, size)
		})
		b.Run(name+"/files", func(b *testing.B) {
			for b.Loop() {
				n := 0
				for _, err := range tt.snapshot(Latest).Files(b.Context()) {
					if err != nil {
						b.Fatal(err)
					}
					n++
				}
				if n != files {
					b.Fatalf("%d files", n)
				}
			}
			peak(b, size)
		})
	}
}

// peak reports the largest resident size that the process has had.
func peak(b *testing.B, checkpoint int64) {
	b.Helper()
	b.ReportMetric(float64(checkpoint)/1e6, "checkpoint-MB")
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return // not on this system
	}
	for line := range strings.Lines(string(status)) {
		var kb float64
		if n, _ := fmt.Sscanf(line, "VmHWM: %f kB", &kb); n == 1 {
			b.ReportMetric(kb/1e3, "peak-MB")
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.Sys)/1e6, "go-MB")
}
