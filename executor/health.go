package executor

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/executor/metrics"
	"github.com/firn-project/firn/internal/wire/firnpb"
)

// now is how the executor is, for its metrics.
func (e *Executor) now() (metrics.Now, error) {
	usage := e.store.Usage()
	n := metrics.Now{
		Slots: e.cfg.Slots, Running: e.runner.count(), Unacknowledged: len(e.reporter.attempts()),
		ShuffleDisk: usage.Disk, ShuffleMemory: usage.Memory, DiskLimit: usage.Limit, Registered: e.session.known.Load(),
	}
	n.Reading, n.Uploading = e.flight.Open()
	var err error
	n.Spilled, err = bytesBelow(filepath.Join(e.cfg.Dir, slotsName))
	return n, err
}

// bytesBelow adds up the files below a directory, which come and go meanwhile.
func bytesBelow(dir string) (sum int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				sum += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return sum, err
}

// Ready says what keeps the executor from taking tasks; nil for nothing.
func (e *Executor) Ready() error {
	not := func(why string) error {
		return &commit.Error{Code: commit.CodeCluster, Op: "take tasks on", Object: "executor " + e.cfg.ID, Cause: errors.New(why)}
	}
	switch {
	case !e.session.known.Load():
		return not("the scheduler doesn't know it, or can't be reached, just now")
	case e.session.draining.Load():
		return errDraining
	case e.reporter.full():
		return errFull
	}
	return nil
}

// storeKeys asks the scheduler for keys, and counts that.
func (e *Executor) storeKeys(ctx context.Context, r *firnpb.StoreKeysRequest) (*firnpb.StoreKeysResponse, error) {
	resp, err := e.session.storeKeys(ctx, r)
	e.cfg.Metrics.StoreKeys(err)
	return resp, err
}
