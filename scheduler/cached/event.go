package cached

import "time"

// Event is something that happened to cached frames.
type Event interface{ isEvent() }

// Reserve begins a frame: a job is about to build it for the first time. The answer
// is Granted or Refused.
type Reserve struct {
	Frame, Owner string
	// Build is the job that builds it.
	Build string
	// TTL is how long the frame is kept without being used; 0 for the default.
	TTL time.Duration
	// Again: the job was admitted by an earlier process, so limits don't count.
	Again bool
}

// Use gives a user, which is a job or another frame, the right to read a frame until
// it is Done. The answer is Granted or Refused.
type Use struct {
	Frame, Owner, User string
	// Again: the user had the right in an earlier process, and keeps it as long as
	// the frame is there.
	Again bool
}

// Want asks for pieces of a frame that the user may read: all that it wants now, as
// each Want looks at the whole frame. It is answered by a Give for each, or Deny, at
// once or after a build. Of what the user was given before it doesn't use those pieces
// any more; if it uses others that come from another run of a frame that doesn't
// repeat, it is told by Lose to want those again, too.
type Want struct {
	Frame, User string
	// Pieces are some of so many (Of) as the user was planned for.
	Pieces []int
	Of     int
}

// Unwant takes back what was wanted and wasn't given yet.
type Unwant struct {
	Frame, User string
	Pieces      []int
}

// Holds says that a user was given a piece in an earlier process.
type Holds struct {
	Frame, User string
	Piece       int
}

// Done says that a user reads nothing any more.
type Done struct{ User string }

// Building says which job carries out a StartBuild.
type Building struct{ Frame, Build string }

// Built says that a build has succeeded. Pieces are all of the frame's, those that
// the build was told to keep included.
type Built struct {
	Frame, Build string
	Pieces       []Piece
	// Repeats: a task that runs again gives the same rows in the same order.
	Repeats bool
}

// BuildFailed says that a build hasn't succeeded.
type BuildFailed struct {
	Frame, Build string
	Err          error
}

// PiecesLost says that pieces can't be read any more.
type PiecesLost struct {
	Frame    string
	Attempts []string
}

// ExecutorLost says that an executor is gone, with all pieces on it.
type ExecutorLost struct{ Executor string }

// Release ends a frame. The answer is Granted or Refused.
type Release struct{ Frame, Owner string }

// Tick lets the machine look at the time.
type Tick struct{}

func (Reserve) isEvent()      {}
func (Use) isEvent()          {}
func (Want) isEvent()         {}
func (Unwant) isEvent()       {}
func (Holds) isEvent()        {}
func (Done) isEvent()         {}
func (Building) isEvent()     {}
func (Built) isEvent()        {}
func (BuildFailed) isEvent()  {}
func (PiecesLost) isEvent()   {}
func (ExecutorLost) isEvent() {}
func (Release) isEvent()      {}
func (Tick) isEvent()         {}

// Action is what the event loop must do next.
type Action interface{ isAction() }

// Granted answers Reserve, Use and Release.
type Granted struct{}

// Refused answers them too, with the reason.
type Refused struct{ Err error }

// StartBuild asks for a job that builds the lost pieces of a frame, and keeps the
// others. Building tells which job that is.
type StartBuild struct {
	Frame string
	// Kept are the pieces that stay, by number; a frame that doesn't repeat keeps
	// none.
	Kept map[int]Piece
}

// StopBuild asks to cancel a job that builds a frame for nobody any more. What
// becomes of it changes nothing.
type StopBuild struct{ Build string }

// Give answers a Want for one piece.
type Give struct {
	Frame, User string
	Number      int
	Piece       Piece
}

// Lose tells a user that pieces which it was given are lost, or of another run than
// those that it wants. An executor that is lost is told of by others.
type Lose struct {
	Frame, User string
	Numbers     []int
}

// Deny says that a user won't get what it wants of a frame.
type Deny struct {
	Frame, User string
	Err         error
}

// FreeBuild asks to remove what a build left on executors. It comes once for each
// build, and nobody reads anything of it.
type FreeBuild struct{ Build string }

// Keep asks to write what is now known of a frame to the journal; see Record.
type Keep struct{ Frame string }

// Renew asks to write until when a frame is kept.
type Renew struct {
	Frame   string
	Expires time.Time
}

// Forget asks to take a frame out of the journal.
type Forget struct{ Frame string }

func (Granted) isAction()    {}
func (Refused) isAction()    {}
func (StartBuild) isAction() {}
func (StopBuild) isAction()  {}
func (Give) isAction()       {}
func (Lose) isAction()       {}
func (Deny) isAction()       {}
func (FreeBuild) isAction()  {}
func (Keep) isAction()       {}
func (Renew) isAction()      {}
func (Forget) isAction()     {}
