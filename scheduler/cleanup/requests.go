package cleanup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/scheduler/journal"
)

// clockSlack is by how much a clock may go back between the name of a request and
// its send record.
const clockSlack = time.Hour

// PlanRequests says what would become of the files that a process wrote for
// requests to a table: those that no send record names and the table doesn't refer
// to. t is a driver of the build's table. The error is that of finding out.
func (c Cleaner) PlanRequests(ctx context.Context, b journal.Build, t commit.Marked) (Plan, error) {
	m, err := c.tableOf(ctx, b, t)
	if errors.Is(err, ErrUnclear) {
		return Plan{Because: err}, nil
	}
	if err != nil {
		return Plan{}, err
	}
	p := Plan{Why: "it was written for a commit request that was never sent, by a process that is gone"}
	p.Because = c.Journal.DeletingBuilt(ctx, b, commit.FirmClock(m), nil)
	if p.Because != nil && !errors.Is(p.Because, journal.ErrNotDroppable) {
		return Plan{}, p.Because
	}
	to := &p.Delete
	if p.Because != nil {
		to = &p.Keep
	}
	err = c.unsent(ctx, b, t, m, func(files []commit.MarkedFile) error {
		for _, f := range files {
			if len(*to) == maxListed {
				p.More++
				continue
			}
			*to = append(*to, f.Path)
		}
		return nil
	})
	return p, err
}

// CleanRequests deletes the files that PlanRequests names, and returns how many.
func (c Cleaner) CleanRequests(ctx context.Context, b journal.Build, t commit.Marked) (int, error) {
	m, err := c.tableOf(ctx, b, t)
	if err != nil {
		return 0, err
	}
	clock := commit.FirmClock(m)
	if err := c.recordBuilt(ctx, b, clock, nil); err != nil {
		return 0, err
	}
	gone := 0
	err = c.unsent(ctx, b, t, m, func(files []commit.MarkedFile) error {
		if err := c.recordBuilt(ctx, b, clock, files); err != nil {
			return err
		}
		paths := make([]string, len(files))
		for i, f := range files {
			paths[i] = f.Path
		}
		if err := t.Discard(ctx, commit.Request{MetadataFiles: paths}); err != nil {
			return err
		}
		gone += len(paths)
		return ctx.Err()
	})
	if gone > 0 {
		c.Logger.LogAttrs(ctx, slog.LevelInfo, "files of unsent requests deleted", slog.String("table", b.Table.String()), slog.String("mark", b.Mark), slog.Int("files", gone))
	}
	return gone, err
}

func (c Cleaner) recordBuilt(ctx context.Context, b journal.Build, clock commit.Seat, files []commit.MarkedFile) error {
	if c.broken.noRecord {
		files = nil
	}
	err := c.Journal.DeletingBuilt(ctx, b, clock, files)
	if c.broken.anyState && errors.Is(err, journal.ErrNotDroppable) {
		return nil
	}
	return err
}

// tableOf reads the table, which must be the one that the files were written for.
func (c Cleaner) tableOf(ctx context.Context, b journal.Build, t commit.Marked) (commit.Metadata, error) {
	m, err := t.Read(ctx)
	if err != nil {
		return nil, err
	}
	if m.UUID() != b.TableUUID {
		return nil, fmt.Errorf("files of requests to %s: the table was replaced, its UUID is %s now and not %s: %w", b.Table, m.UUID(), b.TableUUID, ErrUnclear)
	}
	return m, nil
}

// unsent hands on, in bounded parts, the marked files that no send record names
// and m's table doesn't refer to.
func (c Cleaner) unsent(ctx context.Context, b journal.Build, t commit.Marked, m commit.Metadata, each func([]commit.MarkedFile) error) error {
	since, err := c.Journal.Remembers(ctx)
	if err != nil {
		return err
	}
	var part []commit.MarkedFile
	flush := func() error {
		files, err := c.unreferenced(ctx, t, m, part)
		part = nil
		if err != nil || len(files) == 0 {
			return err
		}
		return each(files)
	}
	err = t.MarkedFiles(ctx, b.Dir, b.Mark, func(f commit.MarkedFile) error {
		// Of a process that began after that time, no send record was forgotten.
		if b.At.Before(since) && f.Made.Before(since.Add(clockSlack)) && !c.broken.anyAge {
			return nil
		}
		if part = append(part, f); len(part) < maxListed {
			return nil
		}
		return flush()
	})
	if err != nil {
		return err
	}
	return flush()
}

// unreferenced are those of some files that no send record and no version of the
// table refers to.
func (c Cleaner) unreferenced(ctx context.Context, t commit.Marked, m commit.Metadata, part []commit.MarkedFile) ([]commit.MarkedFile, error) {
	if len(part) == 0 {
		return nil, nil
	}
	ids := make([]string, 0, len(part))
	for _, f := range part {
		ids = append(ids, f.RequestID)
	}
	unsent, err := c.Journal.Unsent(ctx, ids)
	if err != nil || len(unsent) == 0 && !c.broken.anyState {
		return nil, err
	}
	is := make(map[string]bool, len(unsent))
	for _, id := range unsent {
		is[id] = true
	}
	paths := map[string]bool{}
	for _, f := range part {
		if is[f.RequestID] || c.broken.anyState {
			paths[f.Path] = true
		}
	}
	if !c.broken.guess {
		if err := t.Unreferenced(ctx, m, paths); err != nil {
			return nil, err
		}
	}
	var out []commit.MarkedFile
	for _, f := range part {
		if paths[f.Path] {
			out = append(out, f)
		}
	}
	return out, nil
}
