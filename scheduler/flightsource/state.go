package flightsource

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/firn-project/firn/commit"
)

// stateVersion is the form of the state file.
const stateVersion = 1

type state struct {
	Version int                   `json:"version"`
	Sources map[string]definition `json:"sources"`
}

func badState(op, path string, cause error) error {
	return &commit.Error{Code: commit.CodeConfig, Op: op, Object: path, Cause: cause}
}

// load reads the file; a missing one is empty.
func load(path string) (map[string]definition, error) {
	st := state{Version: stateVersion, Sources: map[string]definition{}}
	if path == "" {
		return st.Sources, nil
	}
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return st.Sources, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &st)
	}
	if err == nil && st.Version != stateVersion {
		err = fmt.Errorf("version %d of the file isn't known; want %d", st.Version, stateVersion)
	}
	if err != nil {
		return nil, badState("read the sources that statements made", path, err)
	}
	if st.Sources == nil {
		st.Sources = map[string]definition{}
	}
	return st.Sources, nil
}

// save replaces the file, durably.
func save(path string, sources map[string]definition) (err error) {
	if path == "" {
		return nil
	}
	defer func() {
		if err != nil {
			err = badState("keep the sources that statements made", path, err)
		}
	}()
	raw, err := json.MarshalIndent(state{Version: stateVersion, Sources: sources}, "", "  ")
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".sources-") // for its owner alone
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(append(raw, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
