package shuffle_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"pgregory.net/rapid"

	"github.com/firn-project/firn/executor/shuffle"
)

// parts gives the rows of each output, as JSON.
func parts(tb testing.TB, p shuffle.Partitioner, outputs int, batches ...arrow.RecordBatch) [][]string {
	tb.Helper()
	out := make([][]string, outputs)
	for _, b := range batches {
		err := p.Partition(context.Background(), b, func(o int, part arrow.RecordBatch) error {
			out[o] = append(out[o], rows(tb, part)...)
			return nil
		})
		if err != nil {
			tb.Fatal(err)
		}
	}
	return out
}

func byID(b arrow.RecordBatch) (func(int) uint64, error) {
	c := b.Column(0).(*array.Int64)
	return func(row int) uint64 { return uint64(c.Value(row) % 7) }, nil
}

// Each row goes to exactly one output, keeps its order there and its values,
// whatever slices it came in.
func TestPartitionersLoseNothing(t *testing.T) {
	const n = 60
	all := batch(t, 0, n)
	want := rows(t, all)
	rapid.Check(t, func(rt *rapid.T) {
		outputs := rapid.IntRange(1, 5).Draw(rt, "outputs")
		cuts := rapid.SliceOfN(rapid.IntRange(0, n), 0, 6).Draw(rt, "cuts")
		slices.Sort(cuts)
		var in []arrow.RecordBatch
		from := 0
		for _, to := range append(cuts, n) {
			s := all.NewSlice(int64(from), int64(to))
			defer s.Release()
			in, from = append(in, s), to
		}
		for name, p := range map[string]shuffle.Partitioner{
			"single": shuffle.Single{}, "round robin": shuffle.NewRoundRobin(outputs, 3), "hash": shuffle.NewHash(outputs, byID),
		} {
			got := parts(t, p, outputs, in...)
			at := make([]int, outputs)
			for _, row := range want {
				o := slices.IndexFunc(got, func(rows []string) bool { return slices.Contains(rows, row) })
				if o < 0 {
					rt.Fatalf("%s: row %s is gone", name, row)
				}
				if got[o][at[o]] != row {
					rt.Fatalf("%s: output %d has %s where %s belongs", name, o, got[o][at[o]], row)
				}
				at[o]++
			}
			for o := range got {
				if len(got[o]) != at[o] {
					rt.Fatalf("%s: output %d has surplus rows", name, o)
				}
			}
		}
	})
}

func TestHashKeepsKeysTogether(t *testing.T) {
	owner := map[int64]int{}
	p := shuffle.NewHash(3, byID)
	used := map[int]bool{}
	for i := range 10 {
		err := p.Partition(t.Context(), batch(t, i*20, i*20+20), func(o int, part arrow.RecordBatch) error {
			used[o] = true
			for _, id := range ids(t, part) {
				if was, ok := owner[id%7]; ok && was != o {
					return fmt.Errorf("key %d is in outputs %d and %d", id%7, was, o)
				}
				owner[id%7] = o
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(used) != 3 {
		t.Errorf("7 keys use %d of 3 outputs", len(used))
	}
}

func TestRoundRobinIsEven(t *testing.T) {
	big := batch(t, 0, 3*2048)
	count := func(cuts ...int64) []int {
		p := shuffle.NewRoundRobin(3, 0)
		out := make([]int, 3)
		from := int64(0)
		for _, to := range append(cuts, big.NumRows()) {
			s := big.NewSlice(from, to)
			err := p.Partition(t.Context(), s, func(o int, part arrow.RecordBatch) error {
				out[o] += int(part.NumRows())
				return nil
			})
			s.Release()
			if err != nil {
				t.Fatal(err)
			}
			from = to
		}
		return out
	}
	if got := count(1, 5000); !slices.Equal(got, []int{2048, 2048, 2048}) {
		t.Errorf("uneven: %v", got)
	}
	// Few rows make one output and so one file; which one depends on the task.
	small := batch(t, 0, 10)
	for start := range 4 {
		p := shuffle.NewRoundRobin(3, start)
		if got := parts(t, p, 3, small); len(got[start%3]) != 10 {
			t.Errorf("start %d: %v", start, got)
		}
	}
}
