package delta

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/format/delta"
	"github.com/firn-project/firn/internal/objstore"
)

func TestLogNames(t *testing.T) {
	for name, want := range map[string]logFile{
		"00000000000000000012.json":                                                    {version: 12, kind: kindCommit},
		"00000000000000000012.checkpoint.parquet":                                      {version: 12, kind: kindClassic},
		"00000000000000000012.checkpoint.0000000002.0000000003.parquet":                {version: 12, kind: kindMultiPart, part: 2, parts: 3},
		"00000000000000000012.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json":    {version: 12, kind: kindV2},
		"00000000000000000012.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet": {version: 12, kind: kindV2},
	} {
		want.name = name
		if got, ok := parseLogName(name); !ok || got != want {
			t.Errorf("%s: %+v, %t, want %+v", name, got, ok, want)
		}
	}
	for _, name := range []string{
		"", "_last_checkpoint", "00000000000000000012.crc", "0000000000000000012.json", "00000000000000000012.json.tmp", ".00000000000000000012.json.crc",
		"00000000000000000001.00000000000000000012.compacted.json", "00000000000000000012.checkpoint.parquet.crc", "99999999999999999999.json",
		"00000000000000000012.checkpoint.0000000004.0000000003.parquet", "00000000000000000012.checkpoint.2.3.parquet",
		"00000000000000000012.checkpoint.not-a-uuid.parquet", "_commit_80a083e8-7026-4e79-81be-64bd76c43a11.json.tmp", "0000000000000000001a.json",
		"_staged_commits/00000000000000000012.80a083e8-7026-4e79-81be-64bd76c43a11.json", "00000000000000000012.checkpoint", "-0000000000000000012.json",
	} {
		if f, ok := parseLogName(name); ok {
			t.Errorf("%s was taken for %+v", name, f)
		}
	}
}

// TestHintIsAHint: whatever _last_checkpoint says, the snapshot is the same.
func TestHintIsAHint(t *testing.T) {
	tt := newTestTable(t, nil)
	tt.fill(12)
	want := shown(t, tt.snapshot(Latest))
	for _, v := range []int64{5, 10} {
		if err := tt.snapshot(v).Checkpoint(t.Context(), CheckpointOptions{Now: testTime}); err != nil {
			t.Fatal(err)
		}
	}
	good, err := os.ReadFile(tt.path(hintName))
	if err != nil || !strings.Contains(string(good), `"version":10`) {
		t.Fatalf("_last_checkpoint: %s, %v", good, err)
	}
	// Files that readers must not take for any part of a log.
	for _, junk := range []string{
		".00000000000000000011.json.crc", "00000000000000000010.crc", "00000000000000000003.00000000000000000012.compacted.json",
		"00000000000000000099.json.tmp", "00000000000000000012.checkpoint.0000000001.0000000002.parquet", "x",
	} {
		tt.write(junk, "junk")
	}
	tt.write("00000000000000000011.checkpoint.parquet", "") // never finished
	for name, hint := range map[string]string{
		"good": string(good), "older": `{"version":5,"size":20}`, "torn": string(good)[:9], "empty": "", "rubbish": "\x00\xff", "of no checkpoint": `{"version":7,"size":1}`,
		"beyond the end": `{"version":70,"size":1}`, "negative": `{"version":-1}`, "of another type": `{"version":"10"}`, "missing": "none",
	} {
		if err := os.Remove(tt.path(hintName)); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if hint != "none" {
			tt.write(hintName, hint)
		}
		if diff := cmp.Diff(want, shown(t, tt.snapshot(Latest))); diff != "" {
			t.Errorf("with a hint that is %s:\n%s", name, diff)
		}
	}
}

// TestDamagedCheckpoints: the log is read from what else is there.
func TestDamagedCheckpoints(t *testing.T) {
	tt := newTestTable(t, nil)
	tt.fill(12)
	want := shown(t, tt.snapshot(Latest))
	for _, v := range []int64{5, 10} {
		if err := tt.snapshot(v).Checkpoint(t.Context(), CheckpointOptions{Now: testTime}); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := os.ReadFile(tt.path(checkpointName(10)))
	if err != nil {
		t.Fatal(err)
	}
	for _, damage := range []string{"PAR1 no more", string(whole[:len(whole)/2]), string(whole[:len(whole)-20]) + strings.Repeat("\xff", 20)} {
		tt.remove(checkpointName(10))
		tt.write(checkpointName(10), damage)
		if diff := cmp.Diff(want, shown(t, tt.snapshot(Latest))); diff != "" {
			t.Error(diff)
		}
	}
	// Without the commits before it the older checkpoint still does.
	tt.remove(commitName(0), commitName(1), commitName(2), commitName(3), commitName(4))
	if diff := cmp.Diff(want, shown(t, tt.snapshot(Latest))); diff != "" {
		t.Error(diff)
	}
	// And then there's nothing left, and the error names the file.
	tt.remove(commitName(6))
	_, err = tt.log.Snapshot(t.Context(), Latest)
	if commit.CodeOf(err) != commit.CodeMetadataInvalid || !strings.Contains(err.Error(), checkpointName(10)) {
		t.Errorf("a log that can't be read: %v", err)
	}
}

// TestGapWhileListing: a version that is written while the log is listed may be
// missing from the listing, though later ones are in it.
func TestGapWhileListing(t *testing.T) {
	tt := newTestTable(t, nil)
	tt.fill(4)
	late, err := os.ReadFile(tt.path(commitName(3)))
	if err != nil {
		t.Fatal(err)
	}
	tt.remove(commitName(3))
	lists := 0
	tt.store.fail = func(op, _ string) error {
		if op != "list" {
			return nil
		}
		if lists++; lists == 2 {
			tt.write(commitName(3), string(late))
		}
		return nil
	}
	if s := tt.snapshot(Latest); s.Version() != 4 {
		t.Errorf("version %d", s.Version())
	}
}

func TestGaps(t *testing.T) {
	tt := newTestTable(t, nil)
	tt.fill(4)
	tt.remove(commitName(2))
	_, err := tt.log.Snapshot(t.Context(), Latest)
	if commit.CodeOf(err) != commit.CodeMetadataInvalid || !strings.Contains(err.Error(), commitName(2)) {
		t.Errorf("a gap: %v", err)
	}
	if s := tt.snapshot(1); s.Version() != 1 {
		t.Errorf("version %d", s.Version())
	}
	if _, err := tt.log.Snapshot(t.Context(), 9); commit.CodeOf(err) != commit.CodeSnapshotNotFound {
		t.Errorf("a version that isn't there yet: %v", err)
	}
	tt.remove(commitName(0))
	if _, err := tt.log.Snapshot(t.Context(), 1); commit.CodeOf(err) != commit.CodeSnapshotNotFound {
		t.Errorf("a version that isn't there any more: %v", err)
	}
	if _, err := localLog(t.TempDir()).Snapshot(t.Context(), Latest); !errors.Is(err, commit.ErrTableNotFound) {
		t.Errorf("an empty directory: %v", err)
	}
}

// TestBlocks: a log is listed from the hint on, a thousand versions a request.
func TestBlocks(t *testing.T) {
	tt := newTestTable(t, nil)
	for v := int64(1); v <= 2003; v++ {
		tt.write(commitName(v), fmt.Sprintf(`{"txn":{"appId":"a","version":%d}}`, v))
	}
	if err := tt.snapshot(995).Checkpoint(t.Context(), CheckpointOptions{Now: testTime}); err != nil {
		t.Fatal(err)
	}
	tt.store.ops = nil
	s := tt.snapshot(Latest)
	if x, ok := s.Txn("a"); s.Version() != 2003 || !ok || x.Version != 2003 {
		t.Errorf("version %d, txn %+v", s.Version(), x)
	}
	var lists []string
	for _, op := range tt.store.ops {
		if strings.HasPrefix(op, "list") {
			lists = append(lists, op)
		}
	}
	if want := []string{"list 00000000000000000", "list 00000000000000001", "list 00000000000000002"}; !slices.Equal(lists, want) {
		t.Errorf("listed %v, want %v", lists, want)
	}
}

func TestUpdate(t *testing.T) {
	tt := newTestTable(t, nil)
	tt.fill(3)
	s := tt.snapshot(Latest)
	tt.store.ops = nil
	same, err := s.Update(t.Context())
	if err != nil || same != s {
		t.Fatalf("nothing changed: %v, %v", same, err)
	}
	slices.Sort(tt.store.ops) // both at the same time
	if want := []string{"open " + commitName(3), "open " + commitName(4)}; !slices.Equal(tt.store.ops, want) {
		t.Errorf("it took %v, want %v", tt.store.ops, want)
	}
	before := shown(t, s)
	for v := int64(4); v < 30; v++ {
		tt.put(v, Commit{Adds: []*Add{plainAdd(fmt.Sprintf("more%d", v))}, Txns: []Txn{{AppID: "u", Version: v}}})
		next, err := s.Update(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(shown(t, tt.snapshot(Latest)), shown(t, next)); diff != "" {
			t.Fatalf("%d versions on:\n%s", v-3, diff)
		}
	}
	if diff := cmp.Diff(before, shown(t, s)); diff != "" {
		t.Errorf("the old snapshot changed:\n%s", diff)
	}
	// A table made anew in its place, with as many versions.
	other := newTestTable(t, nil)
	other.fill(3)
	if err := os.RemoveAll(filepath.Join(tt.dir, logDir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(other.path(""), tt.path("")); err != nil {
		t.Fatal(err)
	}
	anew, err := s.Update(t.Context())
	if err != nil || anew.Metadata().ID == s.Metadata().ID {
		t.Errorf("a table made anew wasn't noticed: %v", err)
	}
}

// TestUpdateOfALongTail: a table that gets no checkpoints isn't read anew each
// time, and one that does is.
func TestUpdateOfALongTail(t *testing.T) {
	tt := newTestTable(t, nil)
	line := func(v int64) { tt.write(commitName(v), fmt.Sprintf(`{"txn":{"appId":"a","version":%d}}`, v)) }
	for v := int64(1); v <= updateTail+5; v++ {
		line(v)
	}
	s := tt.snapshot(Latest)
	line(s.Version() + 1)
	tt.store.ops = nil
	next, err := s.Update(t.Context())
	if err != nil || next.Version() != s.Version()+1 || len(tt.store.ops) > 5 {
		t.Errorf("version %d, %v: it took %v", next.Version(), err, tt.store.ops)
	}
	if err := next.Checkpoint(t.Context(), CheckpointOptions{Now: testTime}); err != nil {
		t.Fatal(err)
	}
	line(next.Version() + 1)
	if next, err = next.Update(t.Context()); err != nil || len(next.Commits()) != 1 {
		t.Errorf("%d commits after the checkpoint, %v", len(next.Commits()), err)
	}
}

func TestPutAndSettle(t *testing.T) {
	tt := newTestTable(t, nil)
	content := func(id string) []byte {
		c := Commit{Info: CommitInfo{TxnID: id, Operation: "WRITE"}, Adds: []*Add{plainAdd("f-" + id)}}
		b, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	settle := func(version int64, id string, want Settled) {
		t.Helper()
		if got, err := tt.log.Settle(t.Context(), version, id); err != nil || got != want {
			t.Errorf("version %d is %v for %s, %v, want %v", version, got, id, err, want)
		}
	}
	settle(1, "a", Absent)
	// The write lands and the reply is lost.
	tt.store.lose = func(string) error { return errFault }
	if err := tt.log.Put(t.Context(), 1, content("a")); !errors.Is(err, errFault) || errors.Is(err, objstore.ErrExists) {
		t.Errorf("a lost reply: %v", err)
	}
	tt.store.lose = nil
	settle(1, "a", Ours)
	settle(1, "b", Theirs)
	settle(1, "", Theirs)
	if err := tt.log.Put(t.Context(), 1, content("b")); !errors.Is(err, objstore.ErrExists) {
		t.Errorf("a version that is taken: %v", err)
	}
	// The write doesn't land.
	tt.store.fail = func(op, _ string) error {
		if op == "put" {
			return errFault
		}
		return nil
	}
	if err := tt.log.Put(t.Context(), 2, content("a2")); !errors.Is(err, errFault) {
		t.Errorf("a write that failed: %v", err)
	}
	tt.store.fail = nil
	settle(2, "a2", Absent)
	// A damaged commit is nobody's, and no answer.
	tt.write(commitName(2), "{")
	if _, err := tt.log.Settle(t.Context(), 2, "a2"); err == nil {
		t.Error("half a commit was settled")
	}
	// Nor is one without an action: not a version in which nothing happened.
	for _, text := range []string{"", "\n \n"} {
		tt.write(commitName(2), text)
		_, err := tt.log.Settle(t.Context(), 2, "a2")
		_, serr := tt.log.Snapshot(t.Context(), Latest)
		for _, err := range []error{err, serr} {
			if err == nil || !strings.Contains(err.Error(), commitName(2)) || !strings.Contains(err.Error(), "without any action") {
				t.Errorf("a commit of %q: %v", text, err)
			}
		}
	}
}

// TestManyWriters: each version is taken once, whoever tries.
func TestManyWriters(t *testing.T) {
	tt := newTestTable(t, map[string]string{delta.PropertyInCommitTimestamps: "true"})
	const writers, commits = 8, 20
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			s, err := tt.log.Snapshot(t.Context(), Latest)
			for n := 0; n < commits && err == nil; {
				// Clocks that differ, and run backwards.
				now := testTime.Add(-time.Duration(w*n) * time.Second)
				info := CommitInfo{TxnID: uuid.NewString(), Operation: "WRITE"}
				if info.Timestamp, info.InCommitTimestamp, err = s.Times(t.Context(), now); err != nil {
					break
				}
				c := Commit{Info: info, Adds: []*Add{plainAdd(fmt.Sprintf("w%d-%d", w, n))}}
				var b []byte
				if b, err = c.Encode(); err != nil {
					break
				}
				err = tt.log.Put(t.Context(), s.Version()+1, b)
				if err == nil {
					n++
				} else if errors.Is(err, objstore.ErrExists) {
					err = nil
				}
				if err == nil {
					s, err = s.Update(t.Context())
				}
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	s := tt.snapshot(Latest)
	if s.Version() != writers*commits {
		t.Errorf("version %d after %d commits", s.Version(), writers*commits)
	}
	files := 0
	for _, err := range s.Files(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		files++
	}
	if files != writers*commits {
		t.Errorf("%d files of %d commits", files, writers*commits)
	}
	last := int64(0)
	for _, c := range s.Commits() {
		at := c.Info.InCommitTimestamp
		if at == nil || *at <= last {
			t.Fatalf("version %d: time %v after %d", c.Version, at, last)
		}
		last = *at
	}
}

func TestEncodeRefusals(t *testing.T) {
	good := func() Commit { return Commit{Info: CommitInfo{TxnID: "x", Operation: "WRITE"}} }
	now := int64(1)
	for name, change := range map[string]func(*Commit){
		"no txnId":      func(c *Commit) { c.Info.TxnID = "" },
		"no operation":  func(c *Commit) { c.Info.Operation = "" },
		"two adds":      func(c *Commit) { c.Adds = []*Add{plainAdd("a"), plainAdd("a")} },
		"two spellings": func(c *Commit) { c.Adds = []*Add{plainAdd("a%20b"), plainAdd("a b")} },
		"add and remove of one": func(c *Commit) {
			c.Adds, c.Removes = []*Add{plainAdd("a")}, []*Remove{plainAdd("a").removal(now, true)}
		},
		"two vectors of one path": func(c *Commit) { c.Adds = []*Add{plainAdd("p=1/x"), richAdd("x")} },
		"two txn":                 func(c *Commit) { c.Txns = []Txn{{AppID: "a"}, {AppID: "a"}} },
		"two domains":             func(c *Commit) { c.Domains = []DomainMetadata{{Domain: "a"}, {Domain: "a"}} },
		"some rows move, some don't": func(c *Commit) {
			c.Adds, c.Removes = []*Add{plainAdd("a")}, []*Remove{plainAdd("b").removal(now, false)}
		},
	} {
		c := good()
		change(&c)
		if b, err := c.Encode(); err == nil {
			t.Errorf("%s was written:\n%s", name, b)
		}
	}
	// A new vector for a file: the add replaces the add with the old one.
	c := good()
	c.Adds, c.Removes = []*Add{richAdd("x")}, []*Remove{plainAdd("p=1/x").removal(now, true)}
	if _, err := c.Encode(); err != nil {
		t.Errorf("a new deletion vector: %v", err)
	}
}

// TestCommitText: the lines as other engines read them, commitInfo first.
func TestCommitText(t *testing.T) {
	blind, read := true, int64(3)
	null := (*string)(nil)
	c := Commit{
		Info: CommitInfo{
			Timestamp: 5, Operation: "WRITE", OperationParameters: map[string]string{"mode": "Append"}, ReadVersion: &read, IsolationLevel: "Serializable",
			IsBlindAppend: &blind, OperationMetrics: map[string]string{"numFiles": "1"}, EngineInfo: "Firn/1", TxnID: "u", Tokens: "t=d",
		},
		Txns: []Txn{{AppID: "t", Version: 1, LastUpdated: &read}},
		Adds: []*Add{{Path: "p=a%252Fb/x", PartitionValues: map[string]*string{"p": null}, Size: 1, ModificationTime: 2, DataChange: true, Stats: `{"numRecords":1,"minValues":{"s":"<&>"}}`}},
	}
	b, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	want := `{"commitInfo":{"timestamp":5,"operation":"WRITE","operationParameters":{"mode":"Append"},"readVersion":3,"isolationLevel":"Serializable","isBlindAppend":true,` +
		`"operationMetrics":{"numFiles":"1"},"engineInfo":"Firn/1","txnId":"u","firn.tokens":"t=d"}}
{"txn":{"appId":"t","version":1,"lastUpdated":3}}
{"add":{"path":"p=a%252Fb/x","partitionValues":{"p":null},"size":1,"modificationTime":2,"dataChange":true,"stats":"{\"numRecords\":1,\"minValues\":{\"s\":\"<&>\"}}"}}
`
	if diff := cmp.Diff(want, string(b)); diff != "" {
		t.Errorf("commit (-want +got):\n%s", diff)
	}
}

func TestNewTable(t *testing.T) {
	spec := func(change func(*TableSpec)) TableSpec {
		s := TableSpec{ID: "id", TxnID: "u", Schema: testSchema(), Partition: []string{"P"}, Now: testTime, Engine: "Firn/1"}
		if change != nil {
			change(&s)
		}
		return s
	}
	property := func(k, v string) func(*TableSpec) {
		return func(s *TableSpec) { s.Properties = map[string]string{k: v} }
	}
	column := func(f delta.Field) func(*TableSpec) {
		return func(s *TableSpec) { s.Schema = &delta.Struct{Fields: append(testSchema().Fields, f)} }
	}
	for _, c := range []struct {
		name   string
		change func(*TableSpec)
		want   string // protocol, or a part of the error
	}{
		{"plain", nil, "1/2 [] []"},
		{"append only", property(delta.PropertyAppendOnly, "true"), "1/2 [] []"},
		{"zoneless", column(delta.Field{Name: "n", Type: delta.TimestampNTZ}), "3/7 [timestampNtz] [appendOnly invariants timestampNtz]"},
		{"zoneless inside", column(delta.Field{Name: "n", Type: &delta.Array{Element: delta.TimestampNTZ}}), "3/7 [timestampNtz] [appendOnly invariants timestampNtz]"},
		{"in-commit timestamps", property(delta.PropertyInCommitTimestamps, "true"), "1/7 [] [appendOnly inCommitTimestamp invariants]"},
		{"change feed", property(delta.PropertyChangeDataFeed, "true"), "1/7 [] [appendOnly changeDataFeed invariants]"},
		{"vectors", property(delta.PropertyDeletionVectors, "true"), "3/7 [deletionVectors] [appendOnly deletionVectors invariants]"},
		{"unknown property", property("delta.enableRowTracking", "true"), "delta.enableRowTracking"},
		{"property that isn't a boolean", property(delta.PropertyAppendOnly, "x"), "neither true nor false"},
		{"checkpoint interval", property(delta.PropertyCheckpointInterval, " 5 "), "1/2 [] []"},
		{"no number", property(delta.PropertyCheckpointInterval, "potato"), `delta.checkpointInterval is "potato"`},
		{"never", property(delta.PropertyCheckpointInterval, "0"), "1 or more"},
		{"space in a name", column(delta.Field{Name: "a b", Type: delta.Long}), "has a letter"},
		{"name twice", column(delta.Field{Name: "V", Type: delta.Long}), "stands twice"},
		{"variant", column(delta.Field{Name: "x", Type: delta.Variant}), "of type variant"},
		{"no partition column", func(s *TableSpec) { s.Partition = []string{"q"} }, "isn't a column"},
		{"partition column twice", func(s *TableSpec) { s.Partition = []string{"p", "P"} }, "stands twice"},
		{"partitioned by all", func(s *TableSpec) { s.Partition = []string{"p", "v"} }, "every column"},
		{"partitioned by binary", func(s *TableSpec) {
			s.Schema.Fields[0].Type = delta.Binary
		}, "binary"},
	} {
		got, err := NewTable(spec(c.change))
		if err != nil {
			if commit.CodeOf(err) != commit.CodeTableDefinition || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", c.name, err, c.want)
			}
			continue
		}
		p := got.Protocol
		if text := fmt.Sprintf("%d/%d %v %v", p.MinReaderVersion, p.MinWriterVersion, p.ReaderFeatures, p.WriterFeatures); text != c.want {
			t.Errorf("%s: protocol %s, want %s", c.name, text, c.want)
		}
		if err := p.Check(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	c, err := NewTable(spec(nil))
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	want := `{"commitInfo":{"timestamp":1700000000000,"operation":"CREATE TABLE","operationParameters":{"isManaged":"false","partitionBy":"[\"p\"]",` +
		`"properties":"{\"delta.setTransactionRetentionDuration\":\"interval 30 days\"}"},"isolationLevel":"Serializable","isBlindAppend":true,"engineInfo":"Firn/1","txnId":"u"}}
{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}
{"metaData":{"id":"id","format":{"provider":"parquet","options":{}},"schemaString":"{\"type\":\"struct\",\"fields\":[{\"name\":\"p\",\"type\":\"string\",\"nullable\":true,\"metadata\":{}},` +
		`{\"name\":\"v\",\"type\":\"long\",\"nullable\":true,\"metadata\":{}}]}","partitionColumns":["p"],"createdTime":1700000000000,"configuration":{"delta.setTransactionRetentionDuration":"interval 30 days"}}}
`
	if diff := cmp.Diff(want, string(b)); diff != "" {
		t.Errorf("version 0 (-want +got):\n%s", diff)
	}
}
