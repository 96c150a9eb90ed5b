package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/failpoint"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/sinks"
)

// deleteTimeout bounds the deletion of the files of an attempt that failed.
const deleteTimeout = 30 * time.Second

// writeFiles writes the rows of a fragment as data files and their manifest as
// the task's output. An attempt that fails leaves no file behind, as far as the
// store lets it.
func (r *task) writeFiles(ctx context.Context, n *plan.Write) (err error) {
	driver := r.e.cfg.Sinks[n.Context.Layout.Format]
	if driver == nil {
		return r.unplanned(fmt.Errorf("this executor can't write tables of format %q", n.Context.Layout.Format))
	}
	store := r.stores(n.Context.Storage)
	w, err := sinks.Open(ctx, driver, sinks.Options{
		Context: sinks.Context{
			Table: n.Context.Table, FormatVersion: n.Context.FormatVersion,
			SchemaJSON: n.Context.Layout.SchemaJSON, SpecJSON: n.Context.Layout.SpecJSON,
			SortOrderJSON: n.Context.SortOrderJSON, Properties: n.Context.Properties,
			Prefix: n.Context.Prefix, TargetFileSize: n.Context.TargetFileSize,
		},
		Attempt: r.def.GetAttemptId(), Stage: int(r.def.GetStage()), Task: int(r.def.GetTask()),
		Store: store, Memory: r.memory() / 4,
		SpillDir: filepath.Join(r.e.cfg.Dir, slotsName),
	})
	if err != nil {
		return err
	}
	var files []commit.File
	// Also a panic in the writer must not leave files.
	complete := false
	defer func() {
		if complete {
			return
		}
		if lerr := errors.Join(w.Abort(), deleteFiles(store, files)); lerr != nil {
			r.e.log.LogAttrs(ctx, slog.LevelWarn, "files of a failed attempt are left for the sweep of the job's prefix",
				slog.String("attempt_id", r.def.GetAttemptId()), slog.Any("error", lerr))
		}
	}()
	in, err := r.open(ctx, n.Input)
	if err != nil {
		return err
	}
	if err := each(ctx, in, w.Write); err != nil {
		return err
	}
	failpoint.Hit(failpoint.BeforeClose)
	if files, err = w.Close(ctx); err != nil {
		return err
	}
	failpoint.Hit(failpoint.AfterClose)
	if err := r.writeManifest(ctx, files); err != nil {
		return err
	}
	failpoint.Hit(failpoint.AfterWritten)
	complete = true
	r.status.Files = uint32(len(files))
	for i := range files {
		r.status.RowsOut += files[i].Rows
		r.status.BytesOut += files[i].Size
	}
	return nil
}

// deleteFiles removes finished files; the attempt's context is usually cancelled
// by then.
func deleteFiles(store objstore.Store, files []commit.File) error {
	ctx, cancel := context.WithTimeout(context.Background(), deleteTimeout)
	defer cancel()
	var errs []error
	for i := range files {
		if err := store.Delete(ctx, files[i].Path); err != nil {
			errs = append(errs, fmt.Errorf("delete %s: %w", files[i].Path, err))
		}
	}
	return errors.Join(errs...)
}
