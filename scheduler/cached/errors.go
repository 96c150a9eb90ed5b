package cached

import (
	"errors"
	"fmt"
	"time"

	"github.com/firn-project/firn/commit"
)

// errNotFound is told of a frame that isn't there, and of one that is somebody
// else's, so that nobody finds out which frames others have.
func errNotFound(op, id string) error {
	return &commit.Error{
		Code: commit.CodeFrameNotFound, Op: op, Object: id, Cause: errors.New("no such frame is known"),
		Hint: "`firn cache list` shows those there are. One that was released, or not used for its time to live, must be cached again.",
	}
}

// errGone says what became of a frame of the caller's own.
func errGone(op, id, why string) error {
	return &commit.Error{
		Code: commit.CodeFrameNotFound, Op: op, Object: id, Cause: errors.New(why), Hint: "Cache the query again, and use the new frame's name.",
	}
}

func errNotBuilt(id, build string) error {
	return &commit.Error{
		Code: commit.CodeFrameNotBuilt, Op: "read cached frame", Object: id, Cause: fmt.Errorf("job %s hasn't built it yet", build),
		Hint: "Wait for that job to succeed.",
	}
}

func errTooMany(n int) error {
	return &commit.Error{
		Code: commit.CodeFrameLimit, Op: "cache query", Cause: fmt.Errorf("you have %d cached frames, and no more are allowed", n),
		Tried: "nothing was run", Hint: "Release one with `firn cache release ID`, or have `cache.frames` raised in the scheduler's file.",
	}
}

func errTooLarge(id string, have, all, limit int64) error {
	return &commit.Error{
		Code: commit.CodeFrameLimit, Op: "keep cached frame", Object: id,
		Cause: fmt.Errorf("it has %d bytes; your cached frames would have %d together, and %d are allowed", have, all, limit),
		Tried: "what was built of it is deleted",
		Hint:  "Cache fewer rows or columns, release a frame with `firn cache release ID`, or have `cache.bytes` raised in the scheduler's file.",
	}
}

func errRebuild(id string, lost int, cause error) error {
	if cause == nil {
		cause = errors.New("the job that did it was stopped")
	}
	e := &commit.Error{
		Code: commit.CodeFrameLost, Op: "build again lost pieces of cached frame", Object: id, Cause: cause,
		Tried: fmt.Sprintf("%d pieces are lost; those that are left stay", lost),
		Hint:  "Send the statement again once the cause is gone. If it can't go, as when a snapshot that the frame was made from has expired, release the frame and cache the query again.",
	}
	return e
}

func errShape(id string, want, have int) error {
	return &commit.Error{
		Code: commit.CodeFrameLost, Op: "read cached frame", Object: id,
		Cause: fmt.Errorf("it was built again while it was read and has %d pieces now instead of %d", have, want), Hint: "Send the statement again.",
	}
}

// expired is why nobody may use a frame any more, for people; so is released.
func expired(ttl time.Duration) string {
	return fmt.Sprintf("it has expired: nobody used it for %s", ttl)
}

const released = "it was released"
