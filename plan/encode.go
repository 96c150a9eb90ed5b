package plan

import (
	"encoding/json"
	"fmt"
)

// envelope is the encoding of one node: its kind, its own fields and its input.
type envelope struct {
	Kind  string          `json:"kind"`
	Node  json.RawMessage `json:"node"`
	Input *envelope       `json:"input,omitempty"`
}

// wrapped is an envelope on its way out. The nodes are encoded where they stand,
// all in one go.
type wrapped struct {
	Kind  string   `json:"kind"`
	Node  Node     `json:"node"`
	Input *wrapped `json:"input,omitempty"`
}

// Encode writes a node and everything below it as JSON.
func Encode(n Node) ([]byte, error) {
	e, err := wrap(n)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("plan: encode %s: %w", e.Kind, err)
	}
	return b, nil
}

// Decode reads what Encode wrote. It refuses unknown kinds and a missing or
// surplus input.
func Decode(b []byte) (Node, error) {
	var e envelope
	if err := json.Unmarshal(b, &e); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	return unwrap(&e)
}

func wrap(n Node) (*wrapped, error) {
	var input Node
	switch in := n.(type) {
	case *Query, *ShuffleRead, *External:
	case *Exchange, *Write, *Coalesce, *Commit:
		if input = in.Inputs()[0]; input != nil {
			n = WithInput(n, nil)
		}
	default:
		return nil, fmt.Errorf("plan: can't encode %T", n)
	}
	e := &wrapped{Kind: n.Kind(), Node: n}
	if input != nil {
		var err error
		if e.Input, err = wrap(input); err != nil {
			return nil, err
		}
	}
	return e, nil
}

func unwrap(e *envelope) (Node, error) {
	var input Node
	if e.Input != nil {
		var err error
		if input, err = unwrap(e.Input); err != nil {
			return nil, err
		}
	}
	var n Node
	leaf := false
	switch e.Kind {
	case KindQuery:
		n, leaf = &Query{}, true
	case KindShuffleRead:
		n, leaf = &ShuffleRead{}, true
	case KindExternal:
		n, leaf = &External{}, true
	case KindExchange:
		n = &Exchange{}
	case KindWrite:
		n = &Write{}
	case KindCoalesce:
		n = &Coalesce{}
	case KindCommit:
		n = &Commit{}
	default:
		return nil, fmt.Errorf("plan: unknown kind of node %q", e.Kind)
	}
	if leaf != (input == nil) {
		return nil, fmt.Errorf("plan: %s has the wrong number of inputs", e.Kind)
	}
	if err := json.Unmarshal(e.Node, n); err != nil {
		return nil, fmt.Errorf("plan: decode %s: %w", e.Kind, err)
	}
	switch n := n.(type) {
	case *Exchange:
		n.Input = input
	case *Write:
		n.Input = input
	case *Coalesce:
		n.Input = input
	case *Commit:
		n.Input = input
	}
	return n, nil
}
