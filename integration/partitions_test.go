//go:build integration

package integration_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/firn-project/firn/integration/process"
	"github.com/firn-project/firn/internal/flightsql/flightsqltest"
)

// tableFiles is what PyIceberg finds in a table: its rows, how many different values
// its column has and their sum, and the data files of the head.
type tableFiles struct {
	Rows, Distinct, Sum, Files, Recorded, Snapshots int64
}

// files has PyIceberg read a column of lake.air.t.
func (l *lakeside) files(column string) (f tableFiles) {
	l.t.Helper()
	python := os.Getenv("FIRN_INTEROP_PYTHON")
	if python == "" {
		l.t.Fatal("FIRN_INTEROP_PYTHON is not set: run `make integration`, or set it to the output of integration/scripts/readers.sh")
	}
	cmd := exec.CommandContext(l.t.Context(), python, "table_files.py", filepath.Join(l.dir, "scheduler", "catalog.db"), "air", "t", column)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &f)
	}
	if err != nil {
		l.t.Fatalf("table_files.py: %v: %s", err, out)
	}
	return f
}

// TestTenThousandPartitionsBecomeAFewFiles: an engine gives its rows in 10,000 parts of
// 100 rows, each of which is a task. They are one commit of a few files, not 10,000.
func TestTenThousandPartitionsBecomeAFewFiles(t *testing.T) {
	const parts, each = 10_000, 100
	s := &flightsqltest.Server{Endpoints: parts, Rows: each}
	l := onEngineWith(t, s, 2, "1m")
	l.Exec(nil, "DROP TABLE lake.air.t")
	l.Exec(nil, "CREATE TABLE lake.air.t (n bigint, s varchar)")
	w := written(t, l.Try("INSERT INTO lake.air.t SELECT n, s FROM flight_sql('engine', $$SELECT * FROM flights$$)"))
	if w.Commit != "committed" || w.Rows != parts*each || w.Tasks <= parts || s.Executions() != 1 {
		t.Fatalf("%d executions: %+v", s.Executions(), w)
	}
	l.few(parts*each, w)
}

// TestTenThousandFilesBecomeAFewFiles: so do 10,000 Parquet files of 100 rows.
func TestTenThousandFilesBecomeAFewFiles(t *testing.T) {
	const parts, each = 10_000, 100
	in := t.TempDir()
	duck(t, fmt.Sprintf("SET partitioned_write_max_open_files = 500; COPY (SELECT i AS n, md5(i::varchar) AS s, i // %d AS p FROM range(%d) r(i)) TO '%s' (FORMAT parquet, PARTITION_BY (p))", each, parts*each, in))
	if files, err := filepath.Glob(filepath.Join(in, "*", "*.parquet")); err != nil || len(files) != parts {
		t.Fatalf("%d files, %v", len(files), err)
	}
	l := startProcesses(t, "push", 2)
	l.Exec(nil, "CREATE TABLE lake.air.t (n bigint, s varchar)")
	w := written(t, l.Try("INSERT INTO lake.air.t SELECT n, s FROM read_parquet("+process.Quote(in+"/*/*.parquet")+")"))
	if w.Commit != "committed" || w.Rows != parts*each {
		t.Fatalf("%+v", w)
	}
	l.few(parts*each, w)
}

// few wants the rows 0 to rows-1 in one snapshot of no more files than there are two
// tasks a slot.
func (l *lakeside) few(rows int64, w process.Write) {
	l.t.Helper()
	f := l.files("n")
	if want := (tableFiles{Rows: rows, Distinct: rows, Sum: rows * (rows - 1) / 2, Files: w.Files, Recorded: rows, Snapshots: 1}); f != want || f.Files > 8 {
		l.t.Errorf("PyIceberg reads %+v, want %+v and at most 8 files", f, want)
	}
	l.t.Logf("%d tasks, %d files", w.Tasks, f.Files)
}

// TestASkewedPartitionIsNotOneTask: of 500,000 rows nine tenths belong to one partition
// of the table. No task writes more than a third of all rows, the slots of both
// executors have some, and the partition's files have the target's size, not less.
func TestASkewedPartitionIsNotOneTask(t *testing.T) {
	const rows = 500_000
	in := filepath.Join(t.TempDir(), "skewed.parquet")
	duck(t, fmt.Sprintf(`COPY (SELECT i AS n, CASE WHEN i %% 10 < 9 THEN 0 ELSE i %% 7 + 1 END AS k, sha256(i::varchar) AS s
		FROM range(%d) r(i)) TO '%s' (ROW_GROUP_SIZE 20000)`, rows, in))
	l := startProcesses(t, "push", 2)
	l.Exec(nil, "CREATE TABLE lake.air.t (n bigint, k bigint, s varchar) PARTITIONED BY (k) TBLPROPERTIES ('write.target-file-size-bytes' = '2097152')")
	w := written(t, l.Try("INSERT INTO lake.air.t SELECT * FROM read_parquet("+process.Quote(in)+")"))
	if w.Commit != "committed" || w.Rows != rows {
		t.Fatalf("%+v", w)
	}
	f := l.files("n")
	if want := (tableFiles{Rows: rows, Distinct: rows, Sum: rows * (rows - 1) / 2, Files: w.Files, Recorded: rows, Snapshots: 1}); f != want || f.Files > 40 {
		t.Errorf("PyIceberg reads %+v, want %+v and at most 40 files", f, want)
	}
	read, tasks := l.rowsRead(1)
	for i, e := range tasks {
		if len(e) == 0 {
			t.Errorf("executor %d wrote nothing", i)
		}
		for _, n := range e {
			if n > rows/3 {
				t.Errorf("a task has %d of %d rows", n, rows)
			}
		}
	}
	if read != rows {
		t.Errorf("the tasks read %d rows, want %d", read, rows)
	}
	t.Logf("rows of the tasks by executor: %v; %d files", tasks, f.Files)
}

// rowsRead are the rows that the tasks of a stage read, in all and by executor, from
// the executors' logs.
func (l *lakeside) rowsRead(stage int) (all int64, tasks [][]int64) {
	l.t.Helper()
	for _, e := range l.executors {
		var own []int64
		for line := range strings.Lines(e.Log()) {
			var ended struct {
				Msg, State string
				Stage      int
				Rows       int64 `json:"rows_in"`
			}
			if json.Unmarshal([]byte(line), &ended) != nil || ended.Msg != "task ended" || ended.State != "succeeded" || ended.Stage != stage {
				continue
			}
			all, own = all+ended.Rows, append(own, ended.Rows)
		}
		tasks = append(tasks, own)
	}
	return all, tasks
}
