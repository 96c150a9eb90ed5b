package journal

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/firn-project/firn/internal/durable"
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
	j.claims.take(name)
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = writeDurably(path, body)
	}
	if isFull(err) && j.spendReserve() {
		err = writeDurably(path, body)
	}
	if err != nil {
		j.claims.leave(name)
	}
	return keptManifest{file: name}, problem("write manifest", path, err)
}

// keepWritten is keepManifest for a manifest that write gives piece by piece. It may
// be called again when the disk was full.
func (j *SQLite) keepWritten(write func(io.Writer) error) (keptManifest, error) {
	if j.dir == "" {
		var all bytes.Buffer
		err := write(&all)
		return keptManifest{body: all.Bytes()}, err
	}
	dir := filepath.Join(j.dir, manifestDir)
	kept, err := j.spillManifest(dir, write)
	if isFull(err) && j.spendReserve() {
		kept, err = j.spillManifest(dir, write)
	}
	return kept, problem("write manifest", dir, err)
}

// spillManifest keeps what is small, and writes the rest to a file that is durable when
// it returns.
func (j *SQLite) spillManifest(dir string, write func(io.Writer) error) (kept keptManifest, err error) {
	s := &spill{dir: dir, sum: sha256.New()}
	defer func() {
		if s.file != nil && err != nil {
			err = errors.Join(err, s.file.Close(), os.Remove(s.file.Name()))
		}
	}()
	out := bufio.NewWriterSize(s, 64<<10)
	if err := errors.Join(write(out), out.Flush()); err != nil {
		return kept, err
	}
	if s.file == nil {
		return keptManifest{body: s.small}, nil
	}
	name := hex.EncodeToString(s.sum.Sum(nil)) + ".arrow"
	if err := s.file.Sync(); err != nil {
		return kept, err
	}
	j.claims.take(name)
	if err := os.Rename(s.file.Name(), filepath.Join(dir, name)); err != nil {
		j.claims.leave(name)
		return kept, err
	}
	err = errors.Join(s.file.Close(), durable.SyncDir(dir), durable.SyncDir(filepath.Dir(dir)))
	if s.file = nil; err != nil {
		j.claims.leave(name)
	}
	return keptManifest{file: name}, err
}

// spill is a manifest that is written: in memory up to maxRow, then in a file.
type spill struct {
	dir   string
	small []byte
	sum   hash.Hash
	file  *os.File
}

// Write implements io.Writer.
func (s *spill) Write(p []byte) (int, error) {
	s.sum.Write(p) // a hash never fails to take bytes
	if s.file == nil {
		if s.small = append(s.small, p...); len(s.small) <= maxRow {
			return len(p), nil
		}
		err := os.MkdirAll(s.dir, 0o700)
		if err == nil {
			s.file, err = os.CreateTemp(s.dir, ".tmp-*")
		}
		if err != nil {
			return 0, err
		}
		_, err = s.file.Write(s.small)
		s.small = nil
		return len(p), err
	}
	return s.file.Write(p)
}

// OpenManifest implements Journal.
func (j *SQLite) OpenManifest(ctx context.Context, jobID string) (io.ReadCloser, error) {
	body, file, err := j.manifestPlace(ctx, jobID)
	if err != nil || file == "" {
		return io.NopCloser(bytes.NewReader(body)), err
	}
	path := filepath.Join(j.dir, manifestDir, file)
	f, err := os.Open(path)
	if err != nil {
		return nil, problem("read manifest", path, err)
	}
	return &keptReader{file: f, name: file, sum: sha256.New()}, nil
}

// keptReader reads a manifest's file and compares it with its name at the end. The file
// isn't embedded: it has WriteTo, which io.Copy would take instead of Read.
type keptReader struct {
	file *os.File
	name string
	sum  hash.Hash
}

// Close implements io.Closer.
func (r *keptReader) Close() error { return r.file.Close() }

// Read implements io.Reader.
func (r *keptReader) Read(p []byte) (int, error) {
	n, err := r.file.Read(p)
	r.sum.Write(p[:n])
	switch {
	case errors.Is(err, io.EOF) && hex.EncodeToString(r.sum.Sum(nil))+".arrow" != r.name:
		err = problem("read manifest", r.file.Name(), errors.New("its content isn't what was kept"))
	case err != nil && !errors.Is(err, io.EOF):
		err = problem("read manifest", r.file.Name(), err)
	}
	return n, err
}

// writeDurably writes a file that is whole and on disk, with its name, or isn't
// there.
func writeDurably(path string, body []byte) error {
	if err := durable.WriteFile(path, body); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(filepath.Dir(path))) // the file's directory may be new itself
}

// manifestPlace is a small manifest, or the name of the file of a large one.
func (j *SQLite) manifestPlace(ctx context.Context, jobID string) (body []byte, file string, err error) {
	err = j.db.QueryRowContext(ctx, `SELECT body, file FROM manifests WHERE job_id = ?`, jobID).Scan(&body, &file)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, "", fmt.Errorf("manifest of job %s: %w", jobID, ErrNotFound)
	}
	return body, file, problem("read manifest of", jobID, err)
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
			if err := os.Remove(filepath.Join(j.dir, manifestDir, f.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// claims counts who is about to put a row on record that names a manifest's file. The
// same content has the same file, whosever it is.
type claims struct {
	mu    sync.Mutex
	files map[string]int
}

func (c *claims) take(file string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.files == nil {
		c.files = map[string]int{}
	}
	c.files[file]++
}

func (c *claims) leave(file string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.files[file]--; c.files[file] == 0 {
		delete(c.files, file)
	}
}

// settle gives the claim on a manifest up, once its row is on record or won't be.
func (j *SQLite) settle(ctx context.Context, kept keptManifest, named bool) {
	if kept.file == "" {
		return
	}
	if j.claims.leave(kept.file); !named {
		j.dropUnnamed(ctx, kept.file)
	}
}

// dropUnnamed removes files of manifests that no row names and nobody is about to name.
// What it can't remove is left to the next sweep.
//
// It's in a transaction of its own, and not in a shared one: no other write is half done
// then, and nobody has taken the journal over.
func (j *SQLite) dropUnnamed(ctx context.Context, files ...string) {
	if j.dir == "" || len(files) == 0 {
		return
	}
	ctx = context.WithoutCancel(ctx)
	_ = j.txOnce(ctx, func(tx *sql.Tx) error {
		j.claims.mu.Lock()
		defer j.claims.mu.Unlock()
		for _, file := range files {
			var named bool
			if err := tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM manifests WHERE file = ?1) OR EXISTS (SELECT 1 FROM write_manifests WHERE file = ?1)`, file).Scan(&named); err != nil {
				return err
			}
			if !named && j.claims.files[file] == 0 {
				_ = os.Remove(filepath.Join(j.dir, manifestDir, file))
			}
		}
		return nil
	})
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
