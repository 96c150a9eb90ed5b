package wire_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
)

// decodeIPC gives the files of a stream that is whole in memory.
func decodeIPC(raw []byte) ([]commit.File, error) {
	files := []commit.File{}
	err := wire.EachFileIPC(bytes.NewReader(raw), func(f commit.File) error {
		files = append(files, f)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return files, nil
}

func TestDecodeManifestIPC(t *testing.T) {
	want := []commit.File{full(), {Path: "x", Format: "PARQUET", Attempt: "a"}, full()}
	b := encode(t, want...)
	first, second := b.NewSlice(0, 1), b.NewSlice(1, 3)
	defer first.Release()
	defer second.Release()
	raw, err := wire.EncodeIPC(wire.ManifestSchema(), first, second)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeIPC(raw)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	// A stream that ends between two messages is shorter, but one that ends in
	// a message is broken.
	for n := range len(raw) {
		if files, err := decodeIPC(raw[:n]); err == nil && len(files) >= len(want) && n < len(raw)-8 {
			t.Errorf("the first %d bytes decode to %d files", n, len(files))
		}
	}
}

// What has its schema's message at hand writes the same stream as the library.
func TestEncodeManifestIPC(t *testing.T) {
	for _, files := range [][]commit.File{nil, {full()}, {full(), {Path: "x", Format: "PARQUET", Attempt: "a"}}} {
		b := encode(t, files...)
		want, err := wire.EncodeIPC(wire.ManifestSchema(), b)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the message is shared
			if got, err := wire.EncodeManifestIPC(b); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d files: %d bytes, %v; want %d", len(files), len(got), err, len(want))
			}
		}
	}
}

func TestDecodeManifestIPCRefuses(t *testing.T) {
	report, err := wire.EncodeReport(commit.Report{})
	if err != nil {
		t.Fatal(err)
	}
	long := binary.LittleEndian.AppendUint32([]byte("\xff\xff\xff\xff"), 0x7fffffff)
	for name, raw := range map[string][]byte{"nothing": nil, "junk": []byte("junk and more junk"), "another schema": report, "endless message": long} {
		files, err := decodeIPC(raw)
		if err == nil || files != nil || !strings.Contains(err.Error(), "malformed file manifest") {
			t.Errorf("%s: got %v, %v", name, files, err)
		}
	}
}

// Changed bytes may be anything to the reader: lengths of gigabytes, offsets in
// circles. None may take the process down or take long.
func TestDecodeManifestIPCSurvivesChanges(t *testing.T) {
	raw, err := wire.EncodeIPC(wire.ManifestSchema(), encode(t, full()))
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		changed := bytes.Clone(raw)
		for range 1 + rng.IntN(4) {
			changed[rng.IntN(len(changed))] = byte(rng.IntN(256))
		}
		files, err := decodeIPC(changed)
		if err != nil && files != nil {
			t.Fatalf("both files and %v", err)
		}
	}
}

func FuzzCheckMessage(f *testing.F) {
	raw, err := wire.EncodeIPC(wire.ManifestSchema())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw[8 : 8+binary.LittleEndian.Uint32(raw[4:])])
	f.Add([]byte{})
	f.Fuzz(func(_ *testing.T, header []byte) {
		var c wire.Checker // it must return
		_, _ = c.CheckMessage(header)
		_ = c.CheckBody(header)
	})
}
