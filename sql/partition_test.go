package sql

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/firn-project/firn/plan"
)

// TestCutCoversEverything: whatever the files are, each row of each belongs to
// exactly one task, in plan order, and no task is empty.
func TestCutCoversEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s plan.Source
		for i := range rapid.IntRange(1, 12).Draw(t, "files") {
			f := plan.SourceFile{Path: fmt.Sprint(i), Size: rapid.Int64Range(0, 1<<28).Draw(t, "size")}
			for range rapid.IntRange(0, 9).Draw(t, "groups") {
				g := plan.RowGroup{Rows: rapid.Int64Range(0, 1000).Draw(t, "rows"), Bytes: rapid.Int64Range(0, 1<<25).Draw(t, "bytes")}
				f.RowGroups = append(f.RowGroups, g)
				f.Rows += g.Rows
			}
			s.Files = append(s.Files, f)
		}
		slots := rapid.IntRange(1, 16).Draw(t, "slots")
		tasks := cut(s, slots)
		if sourceBytes(s) < smallSource && len(pieces(s)) == len(s.Files) {
			if tasks != nil {
				t.Fatal("small files were spread over tasks")
			}
			return
		}
		if most := max(int((sourceBytes(s)+taskBytes-1)/taskBytes), 2*slots); len(tasks) > most {
			t.Fatalf("%d tasks, at most %d wanted", len(tasks), most)
		}
		var got, want []string
		for _, task := range tasks {
			if len(task) == 0 {
				t.Fatal("an empty task")
			}
			for _, f := range task {
				if f.First == 0 && f.End == 0 {
					f.End = f.Rows
				}
				for r := f.First; r < f.End; r++ {
					got = append(got, fmt.Sprint(f.Path, ":", r))
				}
			}
		}
		for _, f := range s.Files {
			for r := range f.Rows {
				want = append(want, fmt.Sprint(f.Path, ":", r))
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("rows read: %d of %d, or in another order", len(got), len(want))
		}
	})
}

// TestManySmallWritersGetAnExchange: where each of many tasks would write a small
// file, what they give goes through an exchange that is cut into files' worths later.
func TestManySmallWritersGetAnExchange(t *testing.T) {
	tasks := func(n int) *plan.Query {
		q := &plan.Query{Parallel: true, Sources: []plan.Source{{Files: []plan.SourceFile{{Size: int64(n) << 26}}}}}
		q.Partitions = make([][]plan.SourceFile, n)
		return q
	}
	for _, c := range []struct {
		query    *plan.Query
		target   int64
		adaptive bool
		want     bool
	}{
		{tasks(9), 1 << 29, true, true},
		{tasks(9), 1 << 29, false, false},
		{tasks(8), 1 << 29, true, false},
		{tasks(9), 1 << 26, true, false}, // their files are as large as wanted
	} {
		n := (&target{fileSize: c.target}).plan(c.query, false, BindOptions{Slots: 2, Adaptive: c.adaptive})
		x, ok := n.(*plan.Commit).Input.(*plan.Write).Input.(*plan.Exchange)
		if ok != c.want || ok && (x.How != plan.ExchangeSingle || x.Partitions != 1) {
			t.Errorf("%d tasks, files of %d bytes, adaptive %t: %+v", len(c.query.Partitions), c.target, c.adaptive, x)
		}
	}
}

// TestCutIsEven: with many small pieces no task gets much more than its share.
func TestCutIsEven(t *testing.T) {
	var f plan.SourceFile
	for range 1000 {
		f.RowGroups = append(f.RowGroups, plan.RowGroup{Rows: 10, Bytes: 1 << 20})
		f.Rows += 10
		f.Size += 1 << 20
	}
	for _, slots := range []int{1, 3, 8, 100} {
		tasks := cut(plan.Source{Files: []plan.SourceFile{f}}, slots)
		share := f.Rows / int64(len(tasks))
		for _, task := range tasks {
			if n := task[0].End - task[0].First; n > share+20 || n < share-20 {
				t.Errorf("%d slots: a task has %d rows, the share is %d", slots, n, share)
			}
		}
	}
}
