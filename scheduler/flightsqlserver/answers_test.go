package flightsqlserver

import (
	"testing"
	"time"

	"github.com/firn-project/firn/commit"
)

// Answers are kept within their bounds: the oldest go, and one that is larger than all
// may be isn't taken.
func TestAnswersAreBounded(t *testing.T) {
	a := answers{keep: time.Hour}
	half := make([]byte, maxAnswerBytes/2)
	var ids []string
	for range 3 {
		id, _, err := a.put(half)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if _, err := a.get(ids[0]); commit.CodeOf(err) != commit.CodeResultLost {
		t.Errorf("the oldest: %v", err)
	}
	for _, id := range ids[1:] {
		if _, err := a.get(id); err != nil {
			t.Error(err)
		}
	}
	if _, _, err := a.put(make([]byte, maxAnswerBytes+1)); commit.CodeOf(err) != commit.CodeBadRequest {
		t.Errorf("one too large: %v", err)
	}
	for range maxAnswers + 10 {
		if _, _, err := a.put(nil); err != nil {
			t.Fatal(err)
		}
	}
	if len(a.byID) != maxAnswers || len(a.order) != maxAnswers || a.bytes != 0 {
		t.Errorf("%d, %d and %d bytes are kept", len(a.byID), len(a.order), a.bytes)
	}
}
