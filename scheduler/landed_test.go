package scheduler

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/scheduler/cleanup"
	"github.com/firn-project/firn/scheduler/journal"
)

// forgetful is a table that knows of a unit only that it landed, and at which seat; the
// version of that seat is still there, and says whose it is.
type forgetful struct {
	otherCatalogs
	commit.Table
	commit.Metadata
	holds string
	asked []string
}

// otherCatalogs has a name that isn't one of its methods'.
type otherCatalogs = Catalogs

// sent is a journal of send records.
type sent struct {
	journal.Journal
	sends []journal.Send
}

func (s sent) Sends(context.Context, commit.Token) ([]journal.Send, error) { return s.sends, nil }

func (f *forgetful) OpenTable(context.Context, commit.TableName) (commit.Table, error) { return f, nil }

func (f *forgetful) Read(context.Context) (commit.Metadata, error) { return f, nil }

func (f *forgetful) Close() error { return nil }

func (f *forgetful) UUID() string { return "u" }

func (f *forgetful) HasSnapshot(string) bool { return false }

func (f *forgetful) Find(string, commit.Token) (commit.Landed, bool) {
	return commit.Landed{Seat: commit.Seat{Number: 13}}, true
}

func (f *forgetful) AddedFiles(_ context.Context, _ commit.Metadata, id string, each func(string) error) error {
	f.asked = append(f.asked, id)
	if id != f.holds {
		return &commit.Error{Code: commit.CodeSnapshotNotFound, Cause: errors.New("version 13 is another commit")}
	}
	return each("a file of " + id)
}

// TestFilesOfACommitThatWasSentTwice: a scheduler that was killed after a send has sent
// again at the same seat. Which of the two landed, the version at that seat says, also
// when the table has forgotten everything else.
func TestFilesOfACommitThatWasSentTwice(t *testing.T) {
	send := func(id string, seat int64) journal.Send {
		return journal.Send{SnapshotID: id, Seat: commit.Seat{Number: seat}}
	}
	sends := []journal.Send{send("12-x", 12), send("13-a", 13), send("13-b", 13)}
	for holds, found := range map[string]bool{"13-a": true, "13-b": true, "13-foreign": false} {
		f := &forgetful{holds: holds}
		s := &Scheduler{cfg: Config{Catalogs: f}, journal: sent{sends: sends}}
		var files []string
		_, err := s.committedFiles(journal.Unit{TableUUID: "u"})(t.Context(), func(path string) error { files = append(files, path); return nil })
		switch {
		case found && (err != nil || !slices.Equal(files, []string{"a file of " + holds})):
			t.Errorf("%s: %v, %v", holds, files, err)
		case !found && (!errors.Is(err, cleanup.ErrUnclear) || files != nil):
			t.Errorf("%s: %v, %v", holds, files, err)
		}
		if slices.Contains(f.asked, "12-x") {
			t.Errorf("%s: a request for another seat was asked for", holds)
		}
	}
}
