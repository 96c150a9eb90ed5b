package journaltest

import (
	"errors"
	"slices"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/scheduler/journal"
)

const mark = "8000-00000000000a"

func build(dir string) journal.Build {
	return journal.Build{Mark: mark, Table: commit.TableName{Catalog: "lake", Namespace: []string{"a"}, Name: "t"}, TableUUID: "uuid", Dir: dir}
}

// testBuilds: a build is recorded once for each directory, and nothing of it is
// deleted or forgotten while its process has the journal.
func testBuilds(t *testing.T, j journal.Journal) {
	ctx := t.Context()
	for _, dir := range []string{"file:///w/metadata", "file:///w/metadata", "file:///x"} {
		must(t, j.Building(ctx, build(dir)))
	}
	all, err := j.Builds(ctx)
	must(t, err)
	if len(all) != 2 || all[0].Epoch != j.Epoch() || all[0].Incarnation != j.Incarnation() || all[0].At.IsZero() || all[0].Mark != mark ||
		all[0].Table.String() != "lake.a.t" || all[0].TableUUID != "uuid" || all[0].Dir != "file:///w/metadata" {
		t.Fatalf("%+v", all)
	}
	if err := j.DeletingBuilt(ctx, all[0], commit.Seat{Number: 100}, nil); !errors.Is(err, journal.ErrNotDroppable) {
		t.Fatalf("of this process: %v", err)
	}
	if err := j.BuildSwept(ctx, all[0]); !errors.Is(err, journal.ErrNotFound) {
		t.Fatalf("of this process: %v", err)
	}
	if err := j.DeletingBuilt(ctx, journal.Build{Mark: "8000-00000000000b"}, commit.Seat{Number: 100}, nil); !errors.Is(err, journal.ErrNotFound) {
		t.Fatalf("of a mark that isn't on record: %v", err)
	}
}

// testEarlierBuilds: files of an earlier epoch may be deleted unless they are of a
// request that was sent, or one that was sent may still land.
func testEarlierBuilds(t *testing.T, o Opener) {
	ctx := t.Context()
	first := open(t, o)
	must(t, first.Building(ctx, build("file:///w/metadata")))
	u := Unit("j-1", "k")
	must(t, first.Seal(ctx, u, Body(nil)))
	sent := Send("r-1-"+mark, u)
	sent.Seat = commit.Seat{Number: 5, Pointer: "p"}
	must(t, first.Send(ctx, sent))
	j := open(t, o)
	all, err := j.Builds(ctx)
	must(t, err)
	if len(all) != 1 || all[0].Epoch >= j.Epoch() {
		t.Fatalf("%+v", all)
	}
	b := all[0]
	if ids, err := j.Unsent(ctx, []string{sent.RequestID, "r-2-" + mark}); err != nil || !slices.Equal(ids, []string{"r-2-" + mark}) {
		t.Fatalf("%v, %v", ids, err)
	}
	file := commit.MarkedFile{Path: "file:///w/metadata/2.avro", RequestID: "r-2-" + mark}
	for clock, may := range map[commit.Seat]bool{
		{Number: 4, Pointer: "p"}: false, {Number: 5, Pointer: "p"}: true, {Number: 4, Pointer: "q"}: true,
	} {
		err := j.DeletingBuilt(ctx, b, clock, []commit.MarkedFile{file})
		if may != (err == nil) || !may && !errors.Is(err, journal.ErrNotDroppable) {
			t.Errorf("clock %+v: %v", clock, err)
		}
	}
	if got, err := j.Deleted(ctx, mark); err != nil || !slices.Equal(got, []string{file.Path}) {
		t.Errorf("on record: %v, %v", got, err)
	}
	file.RequestID = sent.RequestID
	if err := j.DeletingBuilt(ctx, b, commit.Seat{Number: 9, Pointer: "q"}, []commit.MarkedFile{file}); !errors.Is(err, journal.ErrNotDroppable) {
		t.Errorf("of a request that was sent: %v", err)
	}
	if err := first.DeletingBuilt(ctx, b, commit.Seat{Number: 9}, nil); !errors.Is(err, journal.ErrDeposed) {
		t.Errorf("by a process that was deposed: %v", err)
	}
	must(t, j.BuildSwept(ctx, b))
	if all, err := j.Builds(ctx); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
}
