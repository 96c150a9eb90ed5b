package adaptive_test

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/firn-project/firn/scheduler/graph/adaptive"
)

// row is one row of one output.
type row struct {
	task, partition int
	n               int64
}

// static lists the rows in the order of the static plan.
func static(outputs [][]adaptive.Output) (all []row) {
	for p := range outputs[0] {
		for t := range outputs {
			for n := range outputs[t][p].Rows {
				all = append(all, row{t, p, n})
			}
		}
	}
	return all
}

// laidOut lists the rows in the order of the tasks of a layout.
func laidOut(l *adaptive.Layout) (all []row) {
	for _, task := range l.Tasks {
		for _, p := range task {
			end := p.End
			if end == 0 {
				end = p.Rows
			}
			for n := p.First; n < end; n++ {
				all = append(all, row{p.Task, p.Partition, n})
			}
		}
	}
	return all
}

// TestNoRowIsLostOrDoubled: whatever the sizes and the policy are, the tasks read
// each row once and in the order of the static plan.
func TestNoRowIsLostOrDoubled(t *testing.T) {
	merged, split, empty := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		partitions := rapid.IntRange(1, 12).Draw(t, "partitions")
		lying := rapid.Bool().Draw(t, "lying")
		var outputs [][]adaptive.Output
		for range rapid.IntRange(1, 8).Draw(t, "tasks") {
			task := make([]adaptive.Output, partitions)
			for n := range task {
				task[n].Rows = rapid.OneOf(rapid.Just[int64](0), rapid.Int64Range(0, 30), rapid.Int64Range(0, 3000)).Draw(t, "rows")
				if task[n].Bytes = task[n].Rows * 10; lying {
					task[n].Bytes = rapid.OneOf(rapid.Int64Range(0, 1<<20), rapid.Just[int64](math.MaxInt64)).Draw(t, "bytes")
				}
			}
			outputs = append(outputs, task)
		}
		p := adaptive.Policy{
			Tasks: rapid.IntRange(0, 20).Draw(t, "wanted"), MinTask: rapid.Int64Range(0, 1<<16).Draw(t, "min"),
			MaxTask: rapid.Int64Range(0, 1<<20).Draw(t, "max"), MinSplit: rapid.Int64Range(0, 1<<18).Draw(t, "split"), KeepOne: rapid.Bool().Draw(t, "keep"),
		}
		l := adaptive.New(outputs, p)
		if want, got := static(outputs), laidOut(l); !reflect.DeepEqual(want, got) {
			t.Fatalf("%d rows are read, %d are there, or they're in another order: %+v", len(got), len(want), l)
		}
		for n, task := range l.Tasks {
			rows := 0
			for _, p := range task {
				rows += int(p.Rows)
			}
			if rows == 0 && (!p.KeepOne || len(l.Tasks) > 1) {
				t.Fatalf("task %d reads nothing", n)
			}
		}
		if !l.Check(len(outputs), partitions) || l.Partitions != partitions {
			t.Fatalf("%+v doesn't hold for its own input", l)
		}
		for n, task := range outputs {
			rows := make([]int64, partitions)
			for i, o := range task {
				rows[i] = o.Rows
			}
			if !l.Fits(n, rows) {
				t.Fatalf("%+v doesn't fit the outputs of task %d", l, n)
			}
			if rows[0]++; l.Fits(n, rows) {
				t.Fatal("it fits other outputs too")
			}
		}
		raw, err := json.Marshal(l)
		var again adaptive.Layout
		if err == nil {
			err = json.Unmarshal(raw, &again)
		}
		if err != nil || !reflect.DeepEqual(laidOut(&again), laidOut(l)) {
			t.Fatalf("not the same when it is read back: %v", err)
		}
		split, empty = split+l.Split, empty+l.Empty
		if l.Split == 0 && len(l.Tasks) < partitions-l.Empty {
			merged++
		}
	})
	if merged == 0 || split == 0 || empty == 0 {
		t.Errorf("merged %d, split %d, empty %d: the runs miss something", merged, split, empty)
	}
}

const mib = 1 << 20

// TestTenThousandSmallPartitions become a few tasks.
func TestTenThousandSmallPartitions(t *testing.T) {
	outputs := make([][]adaptive.Output, 10000) // a task each, and one output
	for n := range outputs {
		outputs[n] = []adaptive.Output{{Rows: 100, Bytes: 4096}}
	}
	p := adaptive.Policy{Tasks: 4, MinTask: 16 * mib, MaxTask: 2048 * mib}
	if l := adaptive.New(outputs, p); len(l.Tasks) > 3 || len(l.Tasks) == 0 || len(laidOut(l)) != 1_000_000 {
		t.Errorf("%d tasks, %d rows", len(l.Tasks), len(laidOut(l)))
	}
	var wide []adaptive.Output // one task, and 10,000 outputs
	for range 10000 {
		wide = append(wide, adaptive.Output{Rows: 100, Bytes: 4096})
	}
	if l := adaptive.New([][]adaptive.Output{wide}, p); len(l.Tasks) > 3 || len(l.Tasks) == 0 {
		t.Errorf("%d tasks", len(l.Tasks))
	}
}

// TestSkewedPartitionIsSplit: a partition with nine tenths of the rows isn't one
// task, whether many tasks or a single one made it.
func TestSkewedPartitionIsSplit(t *testing.T) {
	for _, producers := range []int64{1, 9} {
		var outputs [][]adaptive.Output
		for range producers {
			task := make([]adaptive.Output, 11)
			for n := range task {
				task[n] = adaptive.Output{Rows: 10_000 / producers, Bytes: 10 * mib / producers}
			}
			task[4] = adaptive.Output{Rows: 900_000 / producers, Bytes: 900 * mib / producers}
			outputs = append(outputs, task)
		}
		l := adaptive.New(outputs, adaptive.Policy{Tasks: 8, MinTask: mib, MaxTask: 256 * mib, MinSplit: 64 * mib})
		if l.Split != 1 {
			t.Fatalf("%d partitions are split", l.Split)
		}
		for n, task := range l.Tasks {
			var rows int64
			for _, p := range task {
				if rows += p.End - p.First; p.End == 0 {
					rows += p.Rows
				}
			}
			if rows > 200_000 {
				t.Errorf("task %d of %d reads %d rows", n, len(l.Tasks), rows)
			}
		}
	}
}

// TestNothingIsMadeOfNothing: a stage without input has no task, or one for its
// schema.
func TestNothingIsMadeOfNothing(t *testing.T) {
	outputs := [][]adaptive.Output{{{}, {}}, {{}, {}}}
	if l := adaptive.New(outputs, adaptive.Policy{Tasks: 2}); len(l.Tasks) != 0 || l.Empty != 2 {
		t.Errorf("%+v", l)
	}
	if l := adaptive.New(outputs, adaptive.Policy{Tasks: 2, KeepOne: true}); len(l.Tasks) != 1 || len(l.Tasks[0]) != 1 {
		t.Errorf("%+v", l)
	}
	if l := adaptive.New(nil, adaptive.Policy{KeepOne: true}); len(l.Tasks) != 0 {
		t.Errorf("no producer: %+v", l)
	}
}
