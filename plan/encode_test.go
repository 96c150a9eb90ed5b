package plan_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/plan"
)

// nodes has one of each kind, with every field of interest set.
func nodes() map[string]plan.Node {
	query := &plan.Query{
		SQL: "SELECT a FROM firn_s0", Columns: []plan.Column{{Name: "a", Type: "DECIMAL(18,2)", FieldID: 3, Required: true, Default: "0"}},
		Sources: []plan.Source{{
			View: []string{"firn_s0"}, Kind: plan.SourceParquet, Patterns: []string{"/in/*.parquet"},
			Files:   []plan.SourceFile{{Path: "/in/ü.parquet", Size: 1 << 40, Rows: -1, RowGroups: []plan.RowGroup{{Rows: 7, Bytes: 9}}, First: 1, End: 5, PositionDeletes: []string{"d"}, EqualityDeletes: []plan.EqualityDelete{{Path: "e", FieldIDs: []int{1}}}}},
			Options: map[string]string{"hive_partitioning": "true"}, Table: commit.TableName{Catalog: "lake", Namespace: []string{"a", "b"}, Name: "t"},
			Flight: &plan.FlightSource{Name: "engine", Query: "SELECT 1", Execution: 2, Info: []byte{0, 1}, Bytes: -1},
			Upload: &plan.Upload{ID: "u", Executor: "x", Location: plan.ShuffleLocation{Job: "u", Ticket: []byte{0, 255}}},
			Frame:  &plan.Frame{ID: "f", Pieces: 3, Repeats: true, Bytes: 2, Locations: []plan.ShuffleLocation{{Job: "j", Frame: "f"}}},
		}},
		Parallel: true, Why: "row-wise", Partitions: [][]plan.SourceFile{{{Path: "p", Endpoint: &plan.FlightEndpoint{Ticket: []byte{255}, Locations: []string{"grpc://h:1"}, ExpiresMS: 9, Metadata: []byte("m")}}}, {}}, RejectLimit: 3, Deterministic: true,
	}
	write := &plan.Write{Input: query, Context: plan.WriteContext{
		Table: commit.TableName{Catalog: "lake", Namespace: []string{"a"}, Name: "t"}, TableUUID: "u", FormatVersion: 2,
		Layout: plan.Layout{Format: "iceberg", SchemaJSON: []byte(`{"type":"struct"}`), SpecJSON: []byte(`{}`)}, Properties: map[string]string{"k": "v"},
		Prefix: "file:///w/data/j-1/", TargetFileSize: 512 << 20, Storage: map[string]string{"s3.region": "x"},
	}}
	read := &plan.ShuffleRead{Stage: 2, Columns: query.Columns, Locations: []plan.ShuffleLocation{{Job: "j", Stage: 1, Task: 2, Attempt: "a", Output: 3, Executor: "e", Address: "h:1", Rows: 4, Bytes: 5, Ticket: []byte("t")}}}
	return map[string]plan.Node{
		"query": query, "shuffle read": read, "write": write,
		"exchange":          &plan.Exchange{Input: read, How: plan.ExchangeHash, Partitions: 4, Layout: &write.Context.Layout},
		"coalesce":          &plan.Coalesce{Input: query, Limit: new(int64(0))},
		"coalesce no limit": &plan.Coalesce{Input: query},
		"commit":            &plan.Commit{Input: &plan.Write{Input: &plan.Exchange{Input: query, How: plan.ExchangeSingle, Partitions: 1}}, Branch: "main", Operation: commit.OperationAppend, Prefix: "p/", Target: plan.Pinned{UUID: "u", SchemaJSON: []byte("{}")}},
	}
}

// TestRoundTrip: what an executor decodes is what the scheduler encoded.
func TestRoundTrip(t *testing.T) {
	for name, n := range nodes() {
		b, err := plan.Encode(n)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := plan.Decode(b)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(n, got); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// TestEncodeLeavesTheNodeAlone: encoding takes inputs out of a copy.
func TestEncodeLeavesTheNodeAlone(t *testing.T) {
	for name, n := range nodes() {
		before := len(n.Inputs())
		if _, err := plan.Encode(n); err != nil {
			t.Fatal(err)
		}
		for _, in := range n.Inputs() {
			if in == nil || reflect.ValueOf(in).IsNil() {
				t.Errorf("%s lost its input", name)
			}
		}
		if len(n.Inputs()) != before {
			t.Errorf("%s has %d inputs, had %d", name, len(n.Inputs()), before)
		}
	}
}

// TestDecodeRefuses: a fragment comes over the wire.
func TestDecodeRefuses(t *testing.T) {
	for text, want := range map[string]string{
		``:                                     "unexpected end",
		`null`:                                 "unknown kind",
		`{"kind":"drop_everything","node":{}}`: "drop_everything",
		`{"kind":"write","node":{}}`:           "number of inputs",
		`{"kind":"exchange","node":{}}`:        "number of inputs",
		`{"kind":"query","node":{"SQL":7}}`:    "decode query",
		`{"kind":"query","node":{},"input":{"kind":"query","node":{}}}`:               "number of inputs",
		`{"kind":"write","node":{},"input":{"kind":"nope","node":{}}}`:                "nope",
		`{"kind":"coalesce","node":{"Limit":"x"},"input":{"kind":"query","node":{}}}`: "decode coalesce",
	} {
		n, err := plan.Decode([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, %v; want an error with %q", text, n, err, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, n := range nodes() {
		b, err := plan.Encode(n)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := plan.Decode(b)
		if err != nil {
			return
		}
		again, err := plan.Encode(n)
		if err != nil {
			t.Fatalf("decoded, but can't be encoded: %v", err)
		}
		if _, err := plan.Decode(again); err != nil {
			t.Fatalf("encoded, but can't be decoded: %v", err)
		}
	})
}

// TestRewriteCopies: what change writes is in the copy alone.
func TestRewriteCopies(t *testing.T) {
	for name, n := range nodes() {
		before, err := plan.Encode(n)
		if err != nil {
			t.Fatal(err)
		}
		kinds := 0
		again := plan.Rewrite(n, func(n plan.Node) {
			kinds++
			switch n := n.(type) {
			case *plan.Query:
				n.SQL = "changed"
			case *plan.ShuffleRead:
				n.Stage = 99
			case *plan.Exchange:
				n.Partitions = 99
			case *plan.Write:
				n.Context.Prefix = "changed"
			case *plan.Coalesce:
				n.Limit = new(int64(99))
			case *plan.Commit:
				n.Branch = "changed"
			}
		})
		depth := 0
		for a, b := n, again; ; a, b = a.Inputs()[0], b.Inputs()[0] {
			if depth++; cmp.Equal(a, b) {
				t.Errorf("%s: the copy of the %s has no change", name, a.Kind())
			}
			if len(a.Inputs()) == 0 {
				break
			}
		}
		after, err := plan.Encode(n)
		if err != nil {
			t.Fatal(err)
		}
		if string(before) != string(after) || kinds != depth {
			t.Errorf("%s: the original is now %s (%d of %d operators visited)", name, after, kinds, depth)
		}
	}
}
