package iceberg

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	ice "github.com/apache/iceberg-go"

	"github.com/firn-project/firn/internal/objstore"
)

// oneFile is a store in which every file has the same content.
type oneFile struct {
	objstore.Store
	content []byte
}

type content struct{ *bytes.Reader }

func (c content) Size() int64 { return c.Reader.Size() }
func (content) Close() error  { return nil }

func (s oneFile) Open(context.Context, string) (objstore.Object, error) {
	return content{bytes.NewReader(s.content)}, nil
}

// addFiles gives the fuzzer the files of tables that others wrote.
func addFiles(f *testing.F, patterns ...string) {
	f.Helper()
	for _, p := range patterns {
		found, err := filepath.Glob(p)
		if err != nil {
			f.Fatal(err)
		}
		for _, path := range found[:min(len(found), 3)] {
			raw, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			if len(raw) < 64<<10 {
				f.Add(raw)
			}
		}
	}
}

// FuzzMetadata: no metadata file makes the reader panic or gives a table that
// can't be looked at.
func FuzzMetadata(f *testing.F) {
	f.Add([]byte(`{"format-version":2,"table-uuid":"9c12d441-03fe-4693-9a96-a0705ddf69c1","location":"s3://b/t","last-sequence-number":34,"last-updated-ms":1602638573590,
		"last-column-id":1,"current-schema-id":0,"schemas":[{"type":"struct","schema-id":0,"fields":[{"id":1,"name":"x","required":true,"type":"long"}]}],
		"default-spec-id":0,"partition-specs":[{"spec-id":0,"fields":[]}],"last-partition-id":1000,"default-sort-order-id":0,"sort-orders":[{"order-id":0,"fields":[]}],
		"properties":{},"current-snapshot-id":1,"snapshots":[{"snapshot-id":1,"sequence-number":34,"timestamp-ms":1602638573590,"manifest-list":"s3://b/l","summary":{"operation":"append"}}],
		"snapshot-log":[],"metadata-log":[],"refs":{"main":{"snapshot-id":1,"type":"branch"}}}`))
	f.Add([]byte("\x1f\x8b\x08"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := ReadMetadata(t.Context(), oneFile{content: raw}, "x.metadata.json")
		if err != nil {
			return
		}
		md := &Metadata{meta: m}
		if p, err := md.Pin(nil); err == nil {
			_, _ = md.Scan(t.Context(), oneFile{content: raw}, p, "")
		}
	})
}

// FuzzAvro: no manifest list and no manifest makes the reader panic.
func FuzzAvro(f *testing.F) {
	addFiles(f, "testdata/*.avro")
	f.Fuzz(func(t *testing.T, raw []byte) {
		st := oneFile{content: raw}
		list := manifestList{path: "x", raw: raw}
		manifests, err := list.parse()
		if err == nil {
			for _, mf := range manifests[:min(len(manifests), 3)] {
				for _, err := range mf.Entries(fileIO{t.Context(), st}, true) {
					if err != nil {
						break
					}
				}
			}
		}
		mf := ice.NewManifestFile(2, "x.avro", int64(len(raw)), 0, 1).AddedFiles(1).Build()
		for e, err := range mf.Entries(fileIO{t.Context(), st}, false) {
			if err != nil {
				break
			}
			if e.DataFile() != nil {
				_, _ = e.DataFile().FilePath(), e.DataFile().LowerBoundValues()
			}
		}
	})
}
