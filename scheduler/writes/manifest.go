package writes

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"golang.org/x/sync/errgroup"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/openwrite"
	"github.com/firn-project/firn/scheduler/committer"
	"github.com/firn-project/firn/scheduler/writes/lifecycle"
)

// bounded is a stream of a worker that may send so many bytes and no more.
type bounded struct {
	flight.FlightService_DoPutServer
	left int64
}

var errTooLong = errors.New("the manifest is longer than it may be")

// Recv counts.
func (b *bounded) Recv() (*flight.FlightData, error) {
	d, err := b.FlightService_DoPutServer.Recv()
	if err != nil {
		return nil, err
	}
	if b.left -= int64(len(d.GetDataHeader()) + len(d.GetDataBody()) + len(d.GetAppMetadata())); b.left < 0 {
		return nil, errTooLong
	}
	return d, nil
}

// manifest is one as it was handed in.
type manifest struct {
	writeID, attempt string
	// files are those of a complete one, rows those of one of paths.
	files []commit.File
	rows  []openwrite.PathsRow
	paths bool
	// digest is of the content, in the order of the paths; body is the encoding of a
	// complete one's, nil before it has one.
	digest string
	body   []byte
}

// readManifest reads the stream that follows the descriptor. Its content is untrusted;
// what is checked here is the form.
func readManifest(writeID, attempt string, stream flight.FlightService_DoPutServer, most, mostFiles int64) (m manifest, err error) {
	m = manifest{writeID: writeID, attempt: attempt}
	// As in package wire: a library builds arrays on what the stream says, and a panic
	// in there is the manifest's fault.
	defer func() {
		if p := recover(); p != nil {
			err = m.refuse("", "it is an Arrow stream of one of the two schemas", fmt.Sprint(p))
		}
	}()
	malformed := func(err error) error {
		if errors.Is(err, errTooLong) {
			return m.refuse("", "a manifest fits the limit", fmt.Sprintf("it has more than %d bytes", most))
		}
		if ctx := stream.Context(); ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return m.refuse("", "it is an Arrow stream of one of the two schemas", err.Error())
	}
	rd, err := wire.NewFlightReader(stream)
	if err != nil {
		return m, malformed(err)
	}
	defer rd.Release()
	m.paths = openwrite.IsPaths(rd.Schema())
	check := wire.CheckManifestSchema
	if m.paths {
		check = openwrite.CheckPathsSchema
	}
	if err := check(rd.Schema()); err != nil {
		return m, malformed(err)
	}
	for {
		b, err := rd.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return m, malformed(err)
		}
		if int64(len(m.files)+len(m.rows))+b.NumRows() > mostFiles {
			return m, m.refuse("", "a manifest fits the limit", fmt.Sprintf("it has more than %d files", mostFiles))
		}
		if m.paths {
			more, err := openwrite.DecodePaths(b)
			if err != nil {
				return m, malformed(err)
			}
			m.rows = append(m.rows, more...)
			continue
		}
		more, err := wire.DecodeManifest(b)
		if err != nil {
			return m, malformed(err)
		}
		m.files = append(m.files, more...)
	}
	slices.SortStableFunc(m.files, func(a, b commit.File) int { return cmp.Compare(a.Path, b.Path) })
	slices.SortStableFunc(m.rows, func(a, b openwrite.PathsRow) int { return cmp.Compare(a.Path, b.Path) })
	err = m.sum()
	return m, err
}

// sum computes the digest: of the canonical encoding of what was handed in, so that
// the same content has the same digest however it was cut into batches.
func (m *manifest) sum() error {
	kind, encode := openwrite.ManifestComplete, func() ([]byte, error) { return encodeFiles(m.files) }
	if m.paths {
		kind, encode = openwrite.ManifestPaths, func() ([]byte, error) {
			rec, err := openwrite.EncodePaths(m.rows)
			if err != nil {
				return nil, err
			}
			defer rec.Release()
			return wire.EncodeIPC(openwrite.PathsSchema(), rec)
		}
	}
	raw, err := encode()
	if err != nil {
		return m.refuse("", "it is an Arrow stream of one of the two schemas", err.Error())
	}
	if !m.paths {
		m.body = raw
	}
	h := sha256.New()
	h.Write([]byte(kind + "\x00"))
	h.Write(raw)
	m.digest = hex.EncodeToString(h.Sum(nil))
	return nil
}

func encodeFiles(files []commit.File) ([]byte, error) {
	rec, err := wire.EncodeManifest(files)
	if err != nil {
		return nil, err
	}
	defer rec.Release()
	return wire.EncodeManifestIPC(rec)
}

func (m *manifest) refuse(file, rule, why string) error {
	return Refuse(m.writeID, m.attempt, file, rule, why)
}

// checkPath holds a path against the write's prefix and the attempt's id.
func (m *manifest) checkPath(prefix, path string) error {
	if rule, why := commit.CheckPath(prefix, commit.File{Path: path, Attempt: m.attempt}); rule != "" {
		return m.refuse(path, rule, why)
	}
	if name := path[strings.LastIndexByte(path, '/')+1:]; !strings.HasPrefix(name, m.attempt+"-") {
		return m.refuse(path, "a file's name begins with its attempt's id and a dash", "its name is "+name)
	}
	return nil
}

// derivedAtOnce is how many files of one manifest are looked at at the same time.
const derivedAtOnce = 8

// complete checks the manifest, and derives what a manifest of paths doesn't say.
func (s *Service) complete(ctx context.Context, w Write, m *manifest) error {
	prefix := w.Plan.Prefix
	for _, f := range m.files {
		if f.Attempt != m.attempt {
			return m.refuse(f.Path, "an attempt hands its own files in", fmt.Sprintf("the row is of attempt %q", f.Attempt))
		}
		if err := m.checkPath(prefix, f.Path); err != nil {
			return err
		}
	}
	for _, r := range m.rows {
		if err := m.checkPath(prefix, r.Path); err != nil {
			return err
		}
	}
	if m.paths && len(m.rows) > 0 {
		if err := s.derive(ctx, w, m); err != nil {
			return err
		}
	}
	// As for executors, though it will be done again before the commit: the worker is
	// still there to be told.
	err := committer.CheckManifest(w.Plan.Target, prefix, m.attempt, m.files)
	if e, ok := errors.AsType[*commit.Error](err); ok {
		file := e.Object
		if !strings.HasPrefix(file, prefix) {
			file = ""
		}
		refused := *m.refuse(file, "", "").(*commit.Error) //nolint:errorlint,forcetypeassert // made here
		refused.Cause = e.Cause
		return &refused
	}
	return err
}

func (s *Service) derive(ctx context.Context, w Write, m *manifest) error {
	if s.deriver == nil {
		return m.refuse("", "manifests of paths need a scheduler that reads footers", "this one doesn't")
	}
	store, err := s.host.Store(ctx, w)
	if err != nil {
		return err
	}
	if store == nil {
		return m.refuse("", "manifests of paths need a scheduler that looks at files", "this one doesn't")
	}
	derive, err := s.deriver.For(w.Plan.Target)
	if err != nil {
		return err
	}
	m.files = make([]commit.File, len(m.rows))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(derivedAtOnce)
	for i := range m.rows {
		g.Go(func() (err error) {
			defer func() {
				if p := recover(); p != nil { // the file is a worker's
					err = m.refuse(m.rows[i].Path, "files are whole Parquet files", fmt.Sprint("its footer can't be read: ", p))
				}
			}()
			ctx, cancel := context.WithTimeoutCause(ctx, s.handInTime, slowStore(m.rows[i].Path, s.handInTime))
			defer cancel()
			if m.files[i], err = derive(ctx, store, m.attempt, m.rows[i]); err != nil && ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return err
		})
	}
	return g.Wait()
}

// slowStore is the error of a store that keeps others from handing in.
func slowStore(path string, limit time.Duration) error {
	return &commit.Error{
		Code: commit.CodeStorage, Op: "read the footer of", Object: path, Cause: fmt.Errorf("the store didn't give it within %s", limit),
		Tried: "nothing was handed in",
	}
}

// record is the manifest as the journal keeps it.
func (m *manifest) record() (lifecycle.Manifest, []byte, error) {
	if m.body == nil {
		var err error
		if m.body, err = encodeFiles(m.files); err != nil {
			return lifecycle.Manifest{}, nil, err
		}
	}
	out := lifecycle.Manifest{Attempt: m.attempt, Digest: m.digest, Files: int64(len(m.files)), Bytes: int64(len(m.body))}
	for _, f := range m.files {
		out.Rows, out.Size = out.Rows+f.Rows, out.Size+f.Size
	}
	return out, m.body, nil
}
