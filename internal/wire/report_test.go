package wire_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/google/go-cmp/cmp"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
)

func report() commit.Report {
	return commit.Report{
		JobID: "j-1", Key: "k/1", Table: commit.TableName{Catalog: "lake", Namespace: []string{"a.b", "c"}, Name: "t"},
		Format: "iceberg", Operation: commit.OperationAppend, State: commit.CommitCommitted,
		Deduplicated: true, RolledBack: true, OtherSubmission: true, Rows: 1 << 40, Files: 7, Bytes: 1 << 50,
		SnapshotID: "9007199254740993", Attempts: 3, Conflicts: 2,
		CommittedAt: time.Date(2026, 1, 2, 3, 4, 5, 678000, time.UTC),
	}
}

func TestReportRoundTrip(t *testing.T) {
	for name, want := range map[string]commit.Report{
		"full": report(), "empty": {}, "no namespace": {Table: commit.TableName{Catalog: "c", Name: "t"}},
	} {
		raw, err := wire.EncodeReport(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := wire.DecodeReport(raw)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if name == "no namespace" {
			want.Table.Namespace = []string{}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: -want +got:\n%s", name, d)
		}
	}
}

// Other Arrow readers see one row with a column for each fact.
func TestReportIsAPlainStream(t *testing.T) {
	raw, err := wire.EncodeReport(report())
	if err != nil {
		t.Fatal(err)
	}
	r, err := ipc.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	if !r.Next() || r.RecordBatch().NumRows() != 1 {
		t.Fatal("not one row")
	}
	i := r.Schema().FieldIndices("table")
	if len(i) != 1 || r.RecordBatch().Column(i[0]).ValueStr(0) != "lake.a.b.c.t" {
		t.Errorf("table column is %v", i)
	}
}

func TestDecodeReportRefuses(t *testing.T) {
	noRows, err := wire.EncodeIPC(wire.ReportSchema())
	if err != nil {
		t.Fatal(err)
	}
	other, err := wire.EncodeIPC(wire.ManifestSchema(), encode(t, full()))
	if err != nil {
		t.Fatal(err)
	}
	for name, raw := range map[string][]byte{"nothing": nil, "no rows": noRows, "another schema": other, "junk": []byte("junk")} {
		if _, err := wire.DecodeReport(raw); err == nil {
			t.Errorf("%s: decoded", name)
		}
	}
}

// FuzzDecodeReport: a root's result that comes from elsewhere can't end anybody.
func FuzzDecodeReport(f *testing.F) {
	raw, err := wire.EncodeReport(commit.Report{JobID: "j", Key: "k", State: commit.CommitCommitted, Rows: 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = wire.DecodeReport(b) })
}
