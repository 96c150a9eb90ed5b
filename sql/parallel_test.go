package sql_test

import (
	"strings"
	"testing"

	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/sql"
)

func parquetFile(path string, groups ...int64) plan.SourceFile {
	f := plan.SourceFile{Path: path}
	for _, mib := range groups {
		f.RowGroups = append(f.RowGroups, plan.RowGroup{Rows: mib * 1000, Bytes: mib << 20})
		f.Rows += mib * 1000
		f.Size += mib << 20
	}
	return f
}

// TestPartitions: every row is read by exactly one task, in plan order.
func TestPartitions(t *testing.T) {
	many := make([]int64, 40)
	for i := range many {
		many[i] = 10
	}
	for _, c := range []struct {
		name  string
		path  string
		files []plan.SourceFile
		tasks int // 0: not parallel
	}{
		{"one file of seven groups", "x.parquet", []plan.SourceFile{parquetFile("a", 2, 2, 2, 2, 2, 2, 1)}, 4},
		{"two groups", "x.parquet", []plan.SourceFile{parquetFile("a", 5, 5)}, 2},
		{"one group", "x.parquet", []plan.SourceFile{parquetFile("a", 50)}, 0},
		{"several files", "x.parquet", []plan.SourceFile{parquetFile("a", 5), parquetFile("b", 5, 5), parquetFile("c", 1, 1, 1)}, 4},
		{"large", "x.parquet", []plan.SourceFile{parquetFile("a", many...)}, 7},
		{"one giant group", "x.parquet", []plan.SourceFile{parquetFile("a", 1, 300, 1, 1, 1)}, 5},
		{"small with row groups", "x.parquet", []plan.SourceFile{{Path: "a", Size: 1000, Rows: 4, RowGroups: []plan.RowGroup{{Rows: 2, Bytes: 500}, {Rows: 2, Bytes: 500}}}}, 2},
		{"small files", "x.parquet", []plan.SourceFile{{Path: "a", Size: 1000, Rows: 4}, {Path: "b", Size: 1000, Rows: 4}}, 0},
		{"no files", "x.parquet", nil, 0},
		{"an empty file among others", "x.parquet", []plan.SourceFile{parquetFile("a", 5, 5), {Path: "e", Size: 300}, parquetFile("b", 5)}, 4},
		{"one csv", "y.csv", []plan.SourceFile{{Path: "a", Size: 500 << 20, Rows: -1}}, 0},
		{"three csvs", "y.csv", []plan.SourceFile{{Path: "a", Size: 1 << 20, Rows: -1}, {Path: "b", Size: 1 << 20, Rows: -1}, {Path: "c", Size: 1 << 20, Rows: -1}}, 3},
	} {
		b := newBinder(t)
		b.rowWise, b.sizes[c.path] = true, c.files
		an := &sql.Analyzer{Catalogs: newCatalogs(t), Binder: b, Parser: parser}
		n, err := an.Bind(t.Context(), parseOne(t, "SELECT a FROM '"+c.path+"'"), airSession, testOptions)
		if err != nil {
			t.Fatal(err)
		}
		q := n.(*plan.Query)
		if q.Parallel != (c.tasks > 0) || len(q.Partitions) != c.tasks || q.Why == "" {
			t.Errorf("%s: parallel %v, %d tasks, %s; want %d tasks", c.name, q.Parallel, len(q.Partitions), q.Why, c.tasks)
		}
		if c.tasks > 0 {
			checkCover(t, c.name, c.files, q.Partitions)
		}
	}
}

// checkCover walks all partitions in order and compares with the files.
func checkCover(t *testing.T, name string, files []plan.SourceFile, partitions [][]plan.SourceFile) {
	t.Helper()
	at, row := 0, int64(0)
	for i, p := range partitions {
		if len(p) == 0 {
			t.Errorf("%s: partition %d is empty", name, i)
		}
		for _, s := range p {
			if at >= len(files) || s.Path != files[at].Path {
				t.Fatalf("%s: partition %d reads %s out of order", name, i, s.Path)
			}
			f := files[at]
			switch {
			case s.First == 0 && s.End == 0: // whole
				if row != 0 {
					t.Errorf("%s: %s is read again", name, s.Path)
				}
				at++
			default:
				if s.First != row || s.End <= s.First || s.End > f.Rows {
					t.Errorf("%s: %s rows %d to %d after %d", name, s.Path, s.First, s.End, row)
				}
				if row = s.End; row == f.Rows {
					at, row = at+1, 0
				}
			}
		}
	}
	if at != len(files) || row != 0 {
		t.Errorf("%s: stopped in file %d at row %d", name, at, row)
	}
}

func TestParallelReasons(t *testing.T) {
	big := []plan.SourceFile{parquetFile("a", 50, 50)}
	for _, c := range []struct {
		q                 string
		rowWise, volatile bool
		want              string
	}{
		{"FROM 'x.parquet'", true, false, ""},
		{"FROM 'x.parquet'", false, false, "a join decided"},
		{"FROM 'x.parquet'", true, true, "deterministic"},
		{"FROM 'x.parquet' l, 'dir/x.parquet' r", true, false, "more than one source"},
		{"VALUES (1)", true, false, "no source"},
	} {
		b := newBinder(t)
		b.rowWise, b.volatile = c.rowWise, c.volatile
		b.sizes["x.parquet"], b.sizes["dir/x.parquet"] = big, big
		an := &sql.Analyzer{Catalogs: newCatalogs(t), Binder: b, Parser: parser}
		n, err := an.Bind(t.Context(), parseOne(t, c.q), airSession, testOptions)
		if err != nil {
			t.Fatal(err)
		}
		q := n.(*plan.Query)
		if q.Parallel != (c.want == "") || !strings.Contains(q.Why, c.want) || q.Deterministic == c.volatile {
			t.Errorf("%s: %v %q, deterministic %v", c.q, q.Parallel, q.Why, q.Deterministic)
		}
	}
}
