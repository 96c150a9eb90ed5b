package durable

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type doc struct {
	Version int    `json:"version"`
	Text    string `json:"text"`
}

func TestState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	got := doc{Version: 1, Text: "as it was"}
	if err := ReadState(path, 1, &got); err != nil || got.Text != "as it was" {
		t.Errorf("without a file: %+v, %v", got, err)
	}
	for _, text := range []string{"one", "two"} {
		if err := WriteState(path, doc{Version: 1, Text: text}); err != nil {
			t.Fatal(err)
		}
		if err := ReadState(path, 1, &got); err != nil || got.Text != text {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if err := ReadState(path, 2, &got); err == nil || !strings.Contains(err.Error(), "version 1") {
		t.Errorf("of another version: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ReadState(path, 1, &got); err == nil {
		t.Error("half a document is read")
	}
}

// A file that can't be put in its place leaves nothing beside it.
func TestWriteFileLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "taken")
	if err := os.MkdirAll(filepath.Join(path, "full"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, []byte("x")); err == nil {
		t.Error("a directory is replaced")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}
