package delta

import (
	"bytes"
	"context"
	"iter"
	"path/filepath"
	"strings"
	"testing"

	"github.com/firn-project/firn/format/delta"
	"github.com/firn-project/firn/internal/objstore"
)

// fixedStore has one file's content under whatever name is asked for.
type fixedStore struct {
	objstore.Store
	content []byte
}

func (s fixedStore) Open(context.Context, string) (objstore.Object, error) {
	return memoryObject{bytes.NewReader(s.content)}, nil
}

// FuzzCommit: no commit of anybody's makes a reader panic, and what was read can
// be written.
func FuzzCommit(f *testing.F) {
	c, err := NewTable(TableSpec{ID: "i", TxnID: "u", Schema: testSchema(), Now: testTime})
	if err != nil {
		f.Fatal(err)
	}
	c.Adds = []*Add{richAdd("a b"), plainAdd("c")}
	c.Removes = []*Remove{richAdd("d").removal(5, true)}
	c.Txns = []Txn{{AppID: "a", Version: 1}}
	c.Domains = []DomainMetadata{{Domain: "d", Configuration: "{}"}}
	b, err := c.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte("{\"commitInfo\":{\"timestamp\":\"x\",\"operationMetrics\":[1],\"isBlindAppend\":5}}\r\n\r\n{\"cdc\":{}}\n{\"new\":{}}"))
	f.Fuzz(func(t *testing.T, content []byte) {
		l := NewLog(fixedStore{content: content}, "/t")
		st := state{txns: map[string]Txn{}, domains: map[string]DomainMetadata{}}
		if err := l.applyCommit(t.Context(), &st, 0); err == nil {
			if s, err := l.finish(segment{}, st); err == nil {
				_ = s.WantsCheckpoint()
				_, _, _ = s.Times(t.Context(), testTime)
			}
		}
		_, _ = l.Settle(t.Context(), 0, "u")
		_, _, _ = l.readHint(t.Context())
		_, _ = l.readCommit(t.Context(), 0, true, func(a Action) error {
			line, err := actionLine(a)
			if err != nil {
				t.Fatal(err)
			}
			again, err := decodeAction([]byte(line))
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			if twice, err := actionLine(again); err != nil || twice != line {
				t.Fatalf("%s became %s, %v", line, twice, err)
			}
			return nil
		})
	})
}

// FuzzCheckpoint: no Parquet file makes a reader panic. Run it with
// -fuzzminimizetime 10x: coverage of the Parquet library isn't the same each time,
// and minimising would take all the time there is.
func FuzzCheckpoint(f *testing.F) {
	var b bytes.Buffer
	err := writeCheckpoint(&b, map[string]string{"delta.parquet.compression.codec": "none"}, actionsOf(
		Action{Protocol: &delta.Protocol{MinReaderVersion: 1, MinWriterVersion: 2}}, Action{Metadata: &Metadata{ID: "i", PartitionColumns: []string{"p"}}},
		Action{Txn: &Txn{AppID: "a", Version: 1}}, Action{Add: richAdd("x")}, Action{Add: plainAdd("y")}, Action{Remove: richAdd("z").removal(1, true)},
	))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, content []byte) {
		if len(content) > 1<<16 {
			return
		}
		for _, w := range []wanted{{state: true}, {files: true}} {
			n := 0
			_ = scanParquet(t.Context(), memoryObject{bytes.NewReader(content)}, w, func(Action) error {
				if n++; n > 1000 {
					return errStop
				}
				return nil
			})
		}
	})
}

func actionsOf(actions ...Action) iter.Seq2[Action, error] {
	return func(yield func(Action, error) bool) {
		for _, a := range actions {
			if !yield(a, nil) {
				return
			}
		}
	}
}

func FuzzLogName(f *testing.F) {
	f.Add("00000000000000000012.checkpoint.0000000002.0000000003.parquet")
	f.Add("00000000000000000012.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json")
	f.Fuzz(func(t *testing.T, name string) {
		if l, ok := parseLogName(name); ok {
			if l.version < 0 || l.name != name || strings.ContainsRune(name, filepath.Separator) {
				t.Fatalf("%q: %+v", name, l)
			}
			if l.kind == kindCommit && commitName(l.version) != name {
				t.Fatalf("%q isn't %q", name, commitName(l.version))
			}
		}
	})
}
