package openwrite

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/firn-project/firn/commit"
)

// Fault is an error as the protocol tells it.
type Fault struct {
	Code   string `json:"code,omitempty"`
	Kind   string `json:"kind,omitempty"`
	Reason string `json:"reason,omitempty"`
	Op     string `json:"op,omitempty"`
	Object string `json:"object,omitempty"`
	Cause  string `json:"cause,omitempty"`
	Tried  string `json:"tried,omitempty"`
	Hint   string `json:"hint,omitempty"`
	// Outcome is none, committed, refused or unknown: what the error means for the
	// table.
	Outcome string `json:"outcome"`
	// Retryable: the same request may go through later.
	Retryable bool `json:"retryable"`
}

// faultMark stands before the fault in the message of a Flight error, and the JSON
// ends it.
const faultMark = " firn-error:"

// maxFaultText bounds each text of a fault: it travels in a header, for which libraries
// have little room.
const maxFaultText = 500

// FaultOf keeps what an error knows. outcome is what it means for the table.
func FaultOf(err error, outcome commit.CommitState) *Fault {
	if err == nil {
		return nil
	}
	f := &Fault{Outcome: string(outcome), Kind: string(commit.KindOf(err))}
	e, ok := errors.AsType[*commit.Error](err)
	if !ok {
		f.Cause = cut(err.Error())
		f.Retryable = true
		return f
	}
	f.Code, f.Reason, f.Op, f.Object = string(e.Code), string(e.Reason), cut(e.Op), cut(e.Object)
	f.Tried, f.Hint = cut(e.Tried), cut(e.Hint)
	if e.Cause != nil {
		f.Cause = cut(e.Cause.Error())
	}
	switch commit.KindOf(err) {
	case commit.KindFailed, commit.KindConflict, commit.KindUnknown, commit.KindTimeout:
		f.Retryable = true
	}
	return f
}

// cut makes a text fit for a header and for JSON.
func cut(s string) string {
	if len(s) > maxFaultText {
		s = s[:maxFaultText] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// Err is the error that the fault was made of, as far as it was kept.
func (f *Fault) Err() error {
	if f == nil {
		return nil
	}
	e := &commit.Error{
		Code: commit.Code(f.Code), Op: f.Op, Object: f.Object, Reason: commit.Reason(f.Reason), Tried: f.Tried, Hint: f.Hint,
	}
	if f.Cause != "" {
		e.Cause = errors.New(f.Cause)
	}
	if f.Code == "" && f.Op == "" {
		return errors.New(f.Cause)
	}
	return e
}

// Message is the message of a Flight error: a line for people, and the fault as
// JSON after a mark.
func (f *Fault) Message() string {
	raw, err := json.Marshal(f)
	if err != nil { // strings
		return f.Err().Error()
	}
	return f.Err().Error() + faultMark + string(raw)
}

// FaultIn finds the fault in a message; nil when there's none.
func FaultIn(message string) *Fault {
	_, rest, ok := strings.Cut(message, faultMark)
	if !ok {
		return nil
	}
	var f Fault
	if json.NewDecoder(strings.NewReader(rest)).Decode(&f) != nil {
		return nil // what stands behind it isn't ours
	}
	return &f
}

// strict reads one JSON value without fields that aren't known.
func strict(raw []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something stands behind the JSON value")
	}
	return nil
}

// Decode reads the body of an action into one of the request types. It is untrusted:
// fields that aren't known, another version and anything behind the JSON are errors.
func Decode(body []byte, to any) error {
	const maxBody = 32 << 20
	if len(body) > maxBody {
		return fmt.Errorf("it has %d bytes, and %d are the most", len(body), maxBody)
	}
	var v struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(body, &v); err != nil {
		return fmt.Errorf("it isn't JSON with a version: %w", err)
	}
	if v.Version != Version {
		return fmt.Errorf("it is of version %d of the protocol, and this is version %d", v.Version, Version)
	}
	return strict(body, to)
}
