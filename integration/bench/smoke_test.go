package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// rounds is how often each writer runs after one run that isn't counted. The
// writers take turns, so that a machine that gets slower does so for all.
const rounds = 5

// input is the whole flights file where FIRN_TESTDATA has it, else the sample.
func input(b *testing.B) string {
	b.Helper()
	path := "../../examples/flights/flights-sample.parquet"
	if dir := os.Getenv("FIRN_TESTDATA"); dir != "" {
		path = filepath.Join(dir, "data", "flights-3m.parquet")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		b.Fatal(err)
	}
	return path
}

// cost is what one run took.
type cost struct {
	wall, cpu time.Duration
}

// writer is one way of writing all rows of the input, as Parquet with zstd. Each
// is up before it is measured, as a server is. run writes below dir, which is
// fresh, and gives the rows it wrote and the time from asking for that to the
// rows being there to be read.
type writer struct {
	name string
	run  func(b *testing.B, dir string, partitioned bool) (rows int64, took time.Duration)
}

// BenchmarkSmoke writes the flights in three ways, partitioned by month and not
// at all, and prints the medians. Wall time and CPU seconds are of this process,
// in which all three run.
func BenchmarkSmoke(b *testing.B) {
	in := input(b)
	writers := []writer{duckCopy(b, in), firnInsert(b, in), libraryAppend(in)}
	if _, err := os.ReadFile(in); err != nil { // into the file cache
		b.Fatal(err)
	}
	for _, v := range []struct {
		name        string
		partitioned bool
	}{{"partitioned", true}, {"unpartitioned", false}} {
		b.Run(v.name, func(b *testing.B) {
			for range b.N {
				compare(b, writers, v.partitioned)
			}
		})
	}
}

func compare(b *testing.B, writers []writer, partitioned bool) {
	b.Helper()
	costs := make([][]cost, len(writers))
	bytes := make([]int64, len(writers))
	files := make([]int, len(writers))
	var rows int64
	for round := range rounds + 1 {
		for turn := range writers {
			i := (turn + round) % len(writers)
			dir := b.TempDir()
			c, n := measure(b, writers[i], dir, partitioned)
			if rows == 0 {
				rows = n
			}
			if n != rows {
				b.Fatalf("%s wrote %d rows, others %d", writers[i].name, n, rows)
			}
			if round > 0 {
				costs[i] = append(costs[i], c)
			}
			files[i], bytes[i] = written(b, dir)
			if err := os.RemoveAll(dir); err != nil {
				b.Fatal(err)
			}
		}
	}
	fmt.Printf("\n%-20s %9s %9s %12s %7s %7s %14s %14s\n", "", "wall s", "CPU s", "rows/s", "files", "MB", "speed / COPY", "speed / Append")
	wall := make([]float64, len(writers))
	cpu := make([]float64, len(writers))
	for i := range writers {
		wall[i], cpu[i] = median(costs[i], func(c cost) time.Duration { return c.wall }), median(costs[i], func(c cost) time.Duration { return c.cpu })
	}
	for i, w := range writers {
		fmt.Printf("%-20s %9.2f %9.2f %12.0f %7d %7.1f %14.2f %14.2f\n", w.name, wall[i], cpu[i], float64(rows)/wall[i],
			files[i], float64(bytes[i])/1e6, wall[0]/wall[i], wall[2]/wall[i])
	}
	fmt.Printf("%d rows, zstd, medians of %d rounds\n\n", rows, rounds)
	b.ReportMetric(wall[0]/wall[1], "speed/copy")
	b.ReportMetric(wall[2]/wall[1], "speed/append")
	b.ReportMetric(cpu[1]/cpu[0], "cpu/copy")
	b.ReportMetric(cpu[1]/cpu[2], "cpu/append")
}

func measure(b *testing.B, w writer, dir string, partitioned bool) (cost, int64) {
	b.Helper()
	before := cpuTime(b)
	rows, took := w.run(b, dir, partitioned)
	return cost{wall: took, cpu: cpuTime(b) - before}, rows
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func median(costs []cost, of func(cost) time.Duration) float64 {
	all := make([]float64, len(costs))
	for i, c := range costs {
		all[i] = of(c).Seconds()
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// written counts the Parquet files below dir and their bytes.
func written(b *testing.B, dir string) (files int, bytes int64) {
	b.Helper()
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && strings.HasSuffix(path, ".parquet") {
			files++
			bytes += info.Size()
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return files, bytes
}

// BenchmarkInsert is the INSERT alone, for profiles (-cpuprofile, -memprofile).
func BenchmarkInsert(b *testing.B) {
	insert := firnInsert(b, input(b))
	for _, partitioned := range []bool{true, false} {
		b.Run(fmt.Sprintf("partitioned=%t", partitioned), func(b *testing.B) {
			var used cost
			for b.Loop() {
				c, _ := measure(b, insert, b.TempDir(), partitioned)
				used.wall, used.cpu = used.wall+c.wall, used.cpu+c.cpu
			}
			b.ReportMetric(used.wall.Seconds()/float64(b.N), "wall-s/op")
			b.ReportMetric(used.cpu.Seconds()/float64(b.N), "cpu-s/op")
		})
	}
}
