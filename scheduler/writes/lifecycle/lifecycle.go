package lifecycle

import (
	"fmt"
	"slices"
	"time"

	"github.com/firn-project/firn/internal/wire/openwrite"
)

// Phase is how far a write has come by its record. What becomes of a sealed one is
// its job's to say.
type Phase string

// Phases of a write.
const (
	Open    Phase = "open"
	Sealed  Phase = "sealed"
	Aborted Phase = "aborted"
	Expired Phase = "expired"
)

// State is a write as it is on record.
type State struct {
	// WriteID is also the id of its job.
	WriteID string
	Phase   Phase
	// JobEnded: its job has ended, so that a write which is open by its own record
	// isn't any more.
	JobEnded bool
	// TTL is what a renewal gives, from its moment on, until MaxExpires at most.
	TTL                 time.Duration
	Expires, MaxExpires time.Time
	// Manifests, Files and Bytes are sums over the manifests that were handed in;
	// Bytes is their size as they are kept.
	Manifests, Files, Bytes int64
	// Handles are those that it was sealed with, sorted, and Digest is theirs.
	Handles []string
	Digest  string
}

// Manifest is what is on record of a manifest beside its body.
type Manifest struct {
	Attempt string
	// Digest is that of the content as it was handed in.
	Digest string
	// Files and Rows are sums over its rows, Size those files' bytes; Bytes is how
	// much the manifest itself takes.
	Files, Rows, Size, Bytes int64
}

// Handle is the manifest's handle in a write.
func (m Manifest) Handle(writeID string) string {
	return openwrite.Handle{WriteID: writeID, Attempt: m.Attempt, Digest: m.Digest}.String()
}

// Event is something that somebody wants of a write.
type Event interface{ isEvent() }

// Put hands the manifest of an attempt in.
type Put struct {
	Manifest Manifest
	Limits   Limits
}

// Seal asks for the commit of the manifests with these handles.
type Seal struct{ Handles []string }

// Abort gives the write up.
type Abort struct{}

// Expire is the passing of time.
type Expire struct{ Now time.Time }

// Renew keeps the write open for longer.
type Renew struct{ Now time.Time }

func (Put) isEvent()    {}
func (Seal) isEvent()   {}
func (Abort) isEvent()  {}
func (Expire) isEvent() {}
func (Renew) isEvent()  {}

// Limits bound what a write holds; see the protocol. Zero stands for none.
type Limits struct{ Manifests, Files, Bytes int64 }

// Verdict is what an event came to.
type Verdict string

// Verdicts.
const (
	// Kept: the manifest goes on record. Known: it is there already.
	Kept  Verdict = "kept"
	Known Verdict = "known"
	// OtherContent: the attempt has handed another manifest in.
	OtherContent Verdict = "other_content"
	// OverLimit: the write would hold more than it may.
	OverLimit Verdict = "over_limit"
	// NowSealed: this event has sealed it. Joined: it was, with the same handles.
	// OtherHandles: with others.
	NowSealed    Verdict = "sealed"
	Joined       Verdict = "joined"
	OtherHandles Verdict = "sealed_with_other_handles"
	// VoidHandle: a handle isn't one of this write.
	VoidHandle Verdict = "void_handle"
	// NowEnded: this event has ended it, by abort or expiry.
	NowEnded Verdict = "ended"
	// NotDue: it hasn't expired.
	NotDue Verdict = "not_due"
	// Renewed: it stays open for longer.
	Renewed Verdict = "renewed"
	// NotOpen: it isn't open any more, and the event changes nothing.
	NotOpen Verdict = "not_open"
)

// Answer is a verdict, and what it is about.
type Answer struct {
	Verdict Verdict
	// Detail names the limit, or the handle.
	Detail string
}

// Step applies one event. manifest looks up what is on record of an attempt's
// manifest. The state is to be recorded unless it is as it was; with Kept, the
// manifest goes with it.
func Step(s State, manifest func(attempt string) (Manifest, bool), ev Event) (State, Answer) {
	if s.Phase == Open && s.JobEnded {
		s.Phase = Aborted
	}
	switch ev := ev.(type) {
	case Put:
		return s.put(manifest, ev)
	case Seal:
		return s.seal(manifest, ev)
	case Abort:
		return s.end(Aborted)
	case Expire:
		if s.Phase == Open && ev.Now.Before(s.Expires) {
			return s, Answer{Verdict: NotDue}
		}
		return s.end(Expired)
	case Renew:
		if s.Phase != Open {
			return s, Answer{Verdict: NotOpen}
		}
		if until := ev.Now.Add(s.TTL); until.After(s.Expires) {
			s.Expires = until
		}
		if s.Expires.After(s.MaxExpires) {
			s.Expires = s.MaxExpires
		}
		return s, Answer{Verdict: Renewed}
	default:
		return s, Answer{Verdict: NotOpen}
	}
}

// put: whoever repeats what is on record is told so as long as the write is open.
func (s State) put(manifest func(string) (Manifest, bool), ev Put) (State, Answer) {
	if s.Phase != Open {
		return s, Answer{Verdict: NotOpen}
	}
	m := ev.Manifest
	if old, ok := manifest(m.Attempt); ok {
		if old.Digest != m.Digest {
			return s, Answer{Verdict: OtherContent}
		}
		return s, Answer{Verdict: Known}
	}
	for _, l := range []struct {
		what      string
		have, max int64
	}{
		{"manifests", s.Manifests + 1, ev.Limits.Manifests},
		{"files", s.Files + m.Files, ev.Limits.Files},
		{"bytes of manifests", s.Bytes + m.Bytes, ev.Limits.Bytes},
	} {
		if l.max > 0 && l.have > l.max {
			return s, Answer{Verdict: OverLimit, Detail: fmt.Sprintf("it would have %d %s; %d are allowed", l.have, l.what, l.max)}
		}
	}
	s.Manifests, s.Files, s.Bytes = s.Manifests+1, s.Files+m.Files, s.Bytes+m.Bytes
	return s, Answer{Verdict: Kept}
}

// seal: once sealed, only the set counts. A handle is looked at while the write is
// open, and one that is void seals nothing.
func (s State) seal(manifest func(string) (Manifest, bool), ev Seal) (State, Answer) {
	handles, digest := openwrite.SealOf(ev.Handles)
	switch s.Phase {
	case Sealed:
		if digest == s.Digest && slices.Equal(handles, s.Handles) {
			return s, Answer{Verdict: Joined}
		}
		return s, Answer{Verdict: OtherHandles}
	case Open:
	default:
		return s, Answer{Verdict: NotOpen}
	}
	for _, text := range handles {
		h, err := openwrite.ParseHandle(text)
		if err != nil {
			return s, Answer{Verdict: VoidHandle, Detail: fmt.Sprintf("%.80q isn't a handle", text)}
		}
		if h.WriteID != s.WriteID {
			return s, Answer{Verdict: VoidHandle, Detail: fmt.Sprintf("the handle of attempt %s is that of write %.80q", h.Attempt, h.WriteID)}
		}
		if m, ok := manifest(h.Attempt); !ok || m.Digest != h.Digest {
			return s, Answer{Verdict: VoidHandle, Detail: fmt.Sprintf("no manifest with the content of the handle of attempt %s was handed in", h.Attempt)}
		}
	}
	s.Phase, s.Handles, s.Digest = Sealed, handles, digest
	return s, Answer{Verdict: NowSealed}
}

func (s State) end(p Phase) (State, Answer) {
	if s.Phase != Open {
		return s, Answer{Verdict: NotOpen}
	}
	s.Phase = p
	return s, Answer{Verdict: NowEnded}
}

// SealedAttempts are the attempts of the handles that a write was sealed with, in
// their order.
func (s State) SealedAttempts() []string {
	out := make([]string, 0, len(s.Handles))
	for _, text := range s.Handles {
		if h, err := openwrite.ParseHandle(text); err == nil {
			out = append(out, h.Attempt)
		}
	}
	return out
}

// Admit says whether another write may be opened beside those that are: of all, and
// of the same principal. why is empty when it may.
func Admit(open, ofPrincipal, most, mostOfPrincipal int) (why string) {
	switch {
	case open >= most:
		return fmt.Sprintf("%d writes are open, and %d are allowed", open, most)
	case ofPrincipal >= mostOfPrincipal:
		return fmt.Sprintf("%d writes of this principal are open, and %d are allowed", ofPrincipal, mostOfPrincipal)
	}
	return ""
}
