package restcatalog

import (
	"encoding/json"
	"io"

	"github.com/apache/iceberg-go/table"
)

// Lies are what a Server does otherwise than the specification has it, each as a
// catalog in use did.
type Lies struct {
	// ConflictStatus answers conflicts with another status; 200 says that the
	// commit was done.
	ConflictStatus int
	// AnyHead takes commits on top of snapshots that aren't the head any more.
	AnyHead bool
	// AnySequence takes commits with a stale sequence number, and gives them
	// the next one.
	AnySequence bool
	// KeepsAtMost drops values of summaries and properties that are longer, in
	// bytes; 0 keeps all.
	KeepsAtMost int
	// HeadOnly shows the current snapshot alone, without its parent.
	HeadOnly bool
	// Reparents shows each snapshot with the first one as its parent.
	Reparents bool
}

// Lie makes the server tell lies from now on.
func (s *Server) Lie(l Lies) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lies = l
}

// heard reads a commit request and changes what the server claims to have heard.
func (s *Server) heard(body io.Reader, meta table.Metadata) ([]byte, error) {
	var in map[string]any
	dec := json.NewDecoder(body)
	dec.UseNumber()
	if err := dec.Decode(&in); err != nil {
		return nil, err
	}
	if requirements, ok := in["requirements"].([]any); ok && s.lies.AnyHead {
		var kept []any
		for _, q := range requirements {
			if q, _ := q.(map[string]any); q["type"] != "assert-ref-snapshot-id" {
				kept = append(kept, q)
			}
		}
		in["requirements"] = kept
	}
	updates, _ := in["updates"].([]any)
	for _, u := range updates {
		u, _ := u.(map[string]any)
		if props, ok := u["updates"].(map[string]any); ok {
			s.shorten(props)
		}
		snapshot, ok := u["snapshot"].(map[string]any)
		if !ok {
			continue
		}
		if summary, ok := snapshot["summary"].(map[string]any); ok {
			s.shorten(summary)
		}
		if s.lies.AnySequence {
			snapshot["sequence-number"] = meta.LastSequenceNumber() + 1
		}
	}
	return json.Marshal(in)
}

// shorten drops long values.
func (s *Server) shorten(values map[string]any) {
	for k, v := range values {
		if text, ok := v.(string); ok && s.lies.KeepsAtMost > 0 && len(text) > s.lies.KeepsAtMost {
			delete(values, k)
		}
	}
}

// told changes a reply to a load.
func (s *Server) told(v any) (any, error) {
	if !s.lies.HeadOnly && !s.lies.Reparents {
		return v, nil
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var out struct {
		Location string                     `json:"metadata-location"`
		Metadata map[string]json.RawMessage `json:"metadata"`
	}
	var snapshots []map[string]json.RawMessage
	if err = json.Unmarshal(raw, &out); err == nil && out.Metadata["snapshots"] != nil {
		err = json.Unmarshal(out.Metadata["snapshots"], &snapshots)
	}
	if err != nil || len(snapshots) < 2 {
		return v, err
	}
	if s.lies.HeadOnly {
		snapshots = snapshots[len(snapshots)-1:]
		delete(snapshots[0], "parent-snapshot-id")
		delete(out.Metadata, "snapshot-log")
	}
	for i := range snapshots {
		if s.lies.Reparents && i > 0 {
			snapshots[i]["parent-snapshot-id"] = snapshots[0]["snapshot-id"]
		}
	}
	if out.Metadata["snapshots"], err = json.Marshal(snapshots); err != nil {
		return nil, err
	}
	return out, nil
}
