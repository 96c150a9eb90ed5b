package bench

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/iceberg-go"

	"github.com/firn-project/firn/catalog"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/answers"
	"github.com/firn-project/firn/scheduler/committer"
	"github.com/firn-project/firn/scheduler/journal"
	firnsql "github.com/firn-project/firn/sql"
)

// manifestColumns is how many columns the files of BenchmarkManifests have.
const manifestColumns = 10

// BenchmarkManifests commits one job of 200,000 files of ten columns to an Iceberg table
// (FIRN_BENCH_FILES for another number): what a root does from the manifests that come
// in batches to the answer, with the journal and the table on disk. The files are
// described and never read. It prints by how much the process's resident memory grows
// at most, and what is held of it for the files. It needs Linux.
func BenchmarkManifests(b *testing.B) {
	n := 200_000
	if v := os.Getenv("FIRN_BENCH_FILES"); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		manifestsOnce(b, n)
	}
}

func manifestsOnce(b *testing.B, n int) {
	ctx, dir := context.Background(), b.TempDir()
	set, err := catalog.Open(ctx, []catalog.Config{{
		Name: "lake", Type: "sql", URI: "sqlite://" + filepath.Join(dir, "catalog.db"), Warehouse: filepath.Join(dir, "warehouse"),
	}})
	if err != nil {
		b.Fatal(err)
	}
	var fields []iceberg.NestedField
	for c := 1; c <= manifestColumns; c++ {
		fields = append(fields, iceberg.NestedField{ID: c, Name: fmt.Sprintf("c%d", c), Type: iceberg.PrimitiveTypes.Int64})
	}
	schema, err := json.Marshal(iceberg.NewSchema(0, fields...))
	if err != nil {
		b.Fatal(err)
	}
	if err := errors.Join(set.CreateNamespace(ctx, "lake", benchTable.Namespace, nil, true),
		set.CreateTable(ctx, firnsql.TableDef{Name: benchTable, Format: "iceberg", SchemaJSON: schema})); err != nil {
		b.Fatal(err)
	}
	target, err := set.Pin(ctx, benchTable)
	if err != nil {
		b.Fatal(err)
	}
	j, err := journal.Open(ctx, filepath.Join(dir, "state"))
	if err != nil {
		b.Fatal(err)
	}
	com := committer.New(committer.Config{Open: set.OpenTable, Recorder: sealing{journaled{j}}})
	defer func() {
		com.Close(ctx)
		if err := errors.Join(j.Close(), set.Close()); err != nil {
			b.Error(err)
		}
	}()
	pool := answers.NewPool(answers.DefaultManifests)
	share := pool.Join()
	defer share.Leave()
	prefix := target.DataLocation + "/j-1/"
	runtime.GC()
	debug.FreeOSMemory()
	before := resident(b, "VmRSS:")
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0o600); err != nil { // VmHWM begins anew
		b.Fatal(err)
	}
	began, held := time.Now(), int64(0)
	rep, err := com.Run(ctx, committer.Root{
		JobID: "j-1", Key: "k", Tasks: 1, Attempts: []string{"a-1"},
		Plan: &plan.Commit{Target: target, Branch: commit.MainBranch, Operation: commit.OperationAppend, Prefix: prefix},
		Read: func(ctx context.Context, into *commit.Packer) error {
			m, at := answers.Manifests{Share: share, Into: into}, 0
			defer func() { held = into.Bytes() }()
			return m.Collect(ctx, nil, "a-1", int64(n), func() (arrow.RecordBatch, error) {
				if at == n {
					return nil, io.EOF
				}
				var batch []commit.File
				for ; at < n && len(batch) < wire.ManifestRows; at++ {
					batch = append(batch, described(prefix, at))
				}
				return wire.EncodeManifest(batch)
			})
		},
	})
	if err != nil || rep.Files != int64(n) {
		b.Fatalf("%+v, %v", rep, err)
	}
	b.ReportMetric(float64(held)/(1<<20), "held-MiB")
	b.ReportMetric(resident(b, "VmHWM:")-before, "grown-MiB")
	b.ReportMetric(time.Since(began).Seconds(), "s/commit")
}

// described is a file as a writer describes it.
func described(prefix string, i int) commit.File {
	f := commit.File{
		Path: fmt.Sprintf("%s%05d-%d-a-1-%d.parquet", prefix, i%1000, i, i), Format: "PARQUET", Attempt: "a-1", Rows: 100_000, Size: 64 << 20,
		ColumnSizes: map[int]int64{}, ValueCounts: map[int]int64{}, NullCounts: map[int]int64{}, Lower: map[int][]byte{}, Upper: map[int][]byte{},
		SplitOffsets: []int64{4},
	}
	for c := 1; c <= manifestColumns; c++ {
		f.ColumnSizes[c], f.ValueCounts[c], f.NullCounts[c] = 6<<20, 100_000, int64(i%7)
		f.Lower[c] = binary.LittleEndian.AppendUint64(nil, uint64(i))
		f.Upper[c] = binary.LittleEndian.AppendUint64(nil, uint64(i+100_000))
	}
	return f
}

// sealing seals as the scheduler does, piece by piece.
type sealing struct{ journaled }

// RecordSeal implements committer.Recorder.
func (r sealing) RecordSeal(ctx context.Context, u commit.Unit) error {
	return r.j.Seal(ctx, journal.Unit{
		JobID: u.JobID, Key: u.Key, Token: u.Token, Digest: u.Digest, Table: u.Table, TableUUID: u.TableUUID, Branch: u.Branch,
		Operation: u.Operation, SchemaID: u.SchemaID, SpecID: u.SpecID, Prefix: u.Prefix, Files: int64(u.Files.Len()), Rows: u.Rows,
		Bytes: u.Bytes, Tasks: u.Tasks, Sealed: time.Now(),
	}, func(w io.Writer) error { return wire.WriteManifest(w, u.Files) })
}

// resident is a line of the process's status in MiB.
func resident(b *testing.B, name string) float64 {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), name)
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return float64(kib) / 1024
}
