package journal

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// maxRow is the largest manifest that is kept in a row.
const maxRow = 1 << 20

const manifestDir = "manifests"

// keptManifest is where a manifest is kept: in the row, or in a file.
type keptManifest struct {
	body []byte
	file string
}

// keepManifest writes a large manifest to a file of its own, which is durable
// when it returns: the row that names it comes after it.
func (j *SQLite) keepManifest(body []byte) (keptManifest, error) {
	if len(body) <= maxRow || j.dir == "" {
		return keptManifest{body: body}, nil
	}
	sum := sha256.Sum256(body)
	name := hex.EncodeToString(sum[:]) + ".arrow"
	dir := filepath.Join(j.dir, manifestDir)
	path := filepath.Join(dir, name)
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = writeDurably(path, body)
	}
	if isFull(err) && j.spendReserve() {
		err = writeDurably(path, body)
	}
	return keptManifest{file: name}, problem("write manifest", path, err)
}

// writeDurably writes a file that is whole and on disk, with its name, or isn't
// there.
func writeDurably(path string, body []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return err
	}
	_, err = f.Write(body)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	// Both directories: the file's may be new itself.
	return errors.Join(syncDir(filepath.Dir(path)), syncDir(filepath.Dir(filepath.Dir(path))))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Manifest implements Journal.
func (j *SQLite) Manifest(ctx context.Context, jobID string) ([]byte, error) {
	var body []byte
	var file string
	err := j.db.QueryRowContext(ctx, `SELECT body, file FROM manifests WHERE job_id = ?`, jobID).Scan(&body, &file)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, fmt.Errorf("manifest of job %s: %w", jobID, ErrNotFound)
	case err != nil || file == "":
		return body, problem("read manifest of", jobID, err)
	}
	return j.readKept(file)
}

// sweep removes manifests that no row names: a process ended between the two.
func (j *SQLite) sweep(ctx context.Context) error {
	j.sealing.Lock()
	defer j.sealing.Unlock()
	found, err := os.ReadDir(filepath.Join(j.dir, manifestDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	rows, err := j.db.QueryContext(ctx, `SELECT file FROM manifests WHERE file <> '' UNION SELECT file FROM write_manifests WHERE file <> ''`)
	named, err := list(rows, err, "manifests", func(s scanner) (f string, err error) { return f, s.Scan(&f) })
	if err != nil {
		return err
	}
	keep := map[string]bool{}
	for _, f := range named {
		keep[f] = true
	}
	for _, f := range found {
		if !keep[f.Name()] {
			if err := os.Remove(filepath.Join(j.dir, manifestDir, f.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// The reserve is space that is kept free for the records of commits in flight.
const (
	reserveName = "reserve"
	reserveSize = 4 << 20
)

// keepReserve takes the space, if there is any; without it no new job is
// admitted.
func (j *SQLite) keepReserve() {
	if j.dir == "" || j.hasReserve() {
		return
	}
	if err := writeDurably(filepath.Join(j.dir, reserveName), make([]byte, reserveSize)); err != nil {
		_ = os.Remove(filepath.Join(j.dir, reserveName)) // half a reserve is none
	}
}

func (j *SQLite) hasReserve() bool {
	info, err := os.Stat(filepath.Join(j.dir, reserveName))
	return err == nil && info.Size() == reserveSize
}

// spendReserve gives the space to what must be written; false when it is spent.
func (j *SQLite) spendReserve() bool {
	return j.dir != "" && os.Remove(filepath.Join(j.dir, reserveName)) == nil
}

// hasRoom refuses new jobs and uploads while the reserve is spent: what is left
// belongs to the commits in flight. It looks first whether the disk has space again.
func (j *SQLite) hasRoom(b Batch) error {
	what := ""
	for _, r := range b.Jobs {
		if r.Submission != nil {
			what = "job " + r.ID
		}
	}
	for _, u := range b.Uploads {
		what = "upload " + u.ID
	}
	if what == "" || j.dir == "" {
		return nil
	}
	if j.keepReserve(); !j.hasReserve() {
		return problem("admit", what, errFull)
	}
	return nil
}

var errFull = errors.New("database or disk is full: the space kept for commits in flight is spent")

// isFull says whether an error is that of a full disk.
func isFull(err error) bool {
	if err == nil {
		return false
	}
	for _, full := range []error{errFull, syscall.ENOSPC, syscall.EDQUOT} {
		if errors.Is(err, full) {
			return true
		}
	}
	var e interface{ Code() int }
	const sqliteFull, codeMask = 13, 0xff
	return errors.As(err, &e) && e.Code()&codeMask == sqliteFull
}
