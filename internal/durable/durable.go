package durable

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteFile makes the file, or replaces it, readable by its owner alone. After an
// error that doesn't come from the directory's own sync the old file is there.
func WriteFile(path string, body []byte) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".tmp-*")
	if err != nil {
		return err
	}
	_, err = f.Write(body)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return SyncDir(dir)
}

// SyncDir makes what was changed in a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// ReadState reads a JSON document into a value, which stays as it is where there's no
// file. The document's field "version" must be the one given.
func ReadState(path string, version int, into any) error {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var form struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(raw, &form); err != nil {
		return err
	}
	if form.Version != version {
		return fmt.Errorf("version %d of the file isn't known; want %d", form.Version, version)
	}
	return json.Unmarshal(raw, into)
}

// WriteState writes a value as a JSON document, for ReadState.
func WriteState(path string, state any) error {
	raw, err := json.MarshalIndent(state, "", "  ")
	if err != nil {
		return err
	}
	return WriteFile(path, append(raw, '\n'))
}
