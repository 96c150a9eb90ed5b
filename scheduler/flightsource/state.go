package flightsource

import (
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/durable"
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
	st := state{Sources: map[string]definition{}}
	if path == "" {
		return st.Sources, nil
	}
	if err := durable.ReadState(path, stateVersion, &st); err != nil {
		return nil, badState("read the sources that statements made", path, err)
	}
	if st.Sources == nil {
		st.Sources = map[string]definition{}
	}
	return st.Sources, nil
}

// save replaces the file, durably.
func save(path string, sources map[string]definition) error {
	if path == "" {
		return nil
	}
	if err := durable.WriteState(path, state{Version: stateVersion, Sources: sources}); err != nil {
		return badState("keep the sources that statements made", path, err)
	}
	return nil
}
