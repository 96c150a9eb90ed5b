package flightsqlserver

import (
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/firn-project/firn/commit"
)

// Handles of results begin with what they name: a job, whose rows the scheduler knows
// of, or an answer that is kept here.
const (
	jobHandle    = "job:"
	answerHandle = "answer:"
)

// maxAnswers bounds what is kept of answers together, in bytes and number.
const (
	maxAnswerBytes = 64 << 20
	maxAnswers     = 10_000
)

// answers are rows that came with the answer to a statement, such as SHOW TABLES. They
// are kept to be read, also again, until they expire or newer ones need the room.
type answers struct {
	keep time.Duration

	mu    sync.Mutex
	byID  map[string]answer
	order []string // oldest first
	bytes int
}

type answer struct {
	rows    []byte
	expires time.Time
}

// put keeps rows, and gives the handle under which they are.
func (a *answers) put(rows []byte) (string, time.Time, error) {
	if len(rows) > maxAnswerBytes {
		return "", time.Time{}, badRequest("answer", fmt.Errorf("it has %d bytes; at most %d are kept", len(rows), maxAnswerBytes))
	}
	now := time.Now()
	id, kept := answerHandle+rand.Text(), answer{rows, now.Add(a.keep)}
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.order) > 0 && (len(a.order) == maxAnswers || a.bytes+len(rows) > maxAnswerBytes || now.After(a.byID[a.order[0]].expires)) {
		a.bytes -= len(a.byID[a.order[0]].rows)
		delete(a.byID, a.order[0])
		a.order = a.order[1:]
	}
	if a.byID == nil {
		a.byID = map[string]answer{}
	}
	a.byID[id], a.order, a.bytes = kept, append(a.order, id), a.bytes+len(rows)
	return id, kept.expires, nil
}

func (a *answers) get(id string) ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	kept, ok := a.byID[id]
	if !ok || time.Now().After(kept.expires) {
		return nil, &commit.Error{
			Code: commit.CodeResultLost, Op: "read", Object: id, Cause: errors.New("the answer was kept for some minutes and is gone"), Hint: "Run the statement again.",
		}
	}
	return kept.rows, nil
}
