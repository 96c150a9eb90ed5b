package commit

import "time"

// Event is what an effect of the machine came back with, or something from
// outside.
type Event interface{ isEvent() }

// Action is an effect that the machine asks for. At most one action of those
// that Step returns is answered by an event (all but Discard and Finish are),
// and it is the last one.
type Action interface{ isAction() }

// Read asks for one fresh read of the table. Answered by ReadDone.
type Read struct{}

// Build asks for one request for the units from the read Base, in which the
// machine has looked for their tokens. Answered by BuildDone.
type Build struct {
	Base  Metadata
	Units []Unit
}

// Permit asks for the point of no return of the units: from a yes on no cancel
// stops them. It is asked once for each. Answered by Permitted.
type Permit struct{ Tokens []Token }

// Record asks to make the send record of the request durable. Answered by RecordDone.
type Record struct{ Request Request }

// Send asks to send one copy, once. Answered by SendDone.
type Send struct{ Request Request }

// Wait until the time given or until a Cancel. Answered by Woke.
type Wait struct{ Until time.Time }

// Discard the metadata files of a request that can't land any more, or was
// never sent. Not answered; a failure only leaves files behind.
type Discard struct{ Request Request }

// Finish tells the outcome of one unit; once for each. Not answered.
type Finish struct {
	Token   Token
	Outcome Outcome
}

// Begin starts the machine.
type Begin struct{}

// ReadDone answers Read.
type ReadDone struct {
	Metadata Metadata
	Err      error
}

// BuildDone answers Build.
type BuildDone struct {
	Request Request
	Err     error
}

// Permitted answers Permit. Denied has the units that lost to a cancel, with
// the error to tell.
type Permitted struct{ Denied map[Token]error }

// RecordDone answers Record. After an error nothing is sent.
type RecordDone struct{ Err error }

// SendDone answers Send.
type SendDone struct{ Answer Answer }

// Woke answers Wait.
type Woke struct{}

// Cancel stops a unit that hasn't passed its point of no return, and changes
// nothing otherwise. It may come at any time.
type Cancel struct {
	Token Token
	Err   error
}

func (Read) isAction()    {}
func (Build) isAction()   {}
func (Permit) isAction()  {}
func (Record) isAction()  {}
func (Send) isAction()    {}
func (Wait) isAction()    {}
func (Discard) isAction() {}
func (Finish) isAction()  {}

func (Begin) isEvent()      {}
func (ReadDone) isEvent()   {}
func (BuildDone) isEvent()  {}
func (Permitted) isEvent()  {}
func (RecordDone) isEvent() {}
func (SendDone) isEvent()   {}
func (Woke) isEvent()       {}
func (Cancel) isEvent()     {}
