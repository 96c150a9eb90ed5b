package delta

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/firn-project/firn/internal/objstore"
)

// Log is the log of one table. It keeps nothing between calls and is safe for
// concurrent use.
type Log struct {
	store objstore.Store
	root  string
}

// NewLog is the log of the table at a location, a URI or an absolute path. It
// reads nothing.
func NewLog(store objstore.Store, root string) *Log {
	return &Log{store: store, root: strings.TrimRight(root, "/")}
}

// Root is the table's location, without a trailing slash.
func (l *Log) Root() string { return l.root }

func (l *Log) uri(name string) string { return l.root + "/" + logDir + "/" + name }

// Limits of what is read at once.
const (
	// maxLine is the longest action. A schema of the largest size fits.
	maxLine = 128 << 20
	// maxHint is the longest _last_checkpoint. It may hold the checkpoint's
	// schema, which is as long as a table is wide.
	maxHint = 16 << 20
	// readBuffer is how much of a commit is fetched in one request at least.
	readBuffer = 1 << 20
)

// fileVersion is what a reader remembers of a commit to see that it is the same
// one later: a version is never written twice, unless the table was made anew.
type fileVersion struct {
	size  int64
	first string
}

// readCommit calls f for each line of a commit, or of a JSON checkpoint, that
// isn't empty. The slice is valid during the call.
func (l *Log) readLines(ctx context.Context, name string, f func(line []byte) error) (v fileVersion, err error) {
	uri := l.uri(name)
	o, err := l.store.Open(ctx, uri)
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	v.size = o.Size()
	r := bufio.NewReaderSize(io.NewSectionReader(o, 0, o.Size()), int(min(max(o.Size(), 16), readBuffer)))
	for n := 1; ; n++ {
		line, rerr := readLine(r)
		if rerr != nil && !errors.Is(rerr, io.EOF) {
			return v, lineError(uri, n, rerr)
		}
		if n == 1 {
			v.first = string(line[:min(len(line), 4096)])
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if err := f(line); err != nil {
				return v, lineError(uri, n, err)
			}
		}
		if rerr != nil {
			return v, nil
		}
		if err := ctx.Err(); err != nil {
			return v, err
		}
	}
}

// errStop ends readLines early.
var errStop = errors.New("stop")

func lineError(uri string, n int, err error) error {
	if errors.Is(err, errStop) {
		return errStop
	}
	if errors.Is(err, objstore.ErrNotFound) || errors.Is(err, objstore.ErrPermission) {
		return err
	}
	return damaged(uri, fmt.Errorf("line %d: %w", n, err))
}

// readLine gives a line, without a copy when it fits the buffer. It ends with
// io.EOF together with the last line.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	long := bytes.Clone(line)
	for errors.Is(err, bufio.ErrBufferFull) {
		if len(long) > maxLine {
			return nil, fmt.Errorf("longer than %d bytes", maxLine)
		}
		line, err = r.ReadSlice('\n')
		long = append(long, line...)
	}
	return long, err
}

// Starts of lines that a reader of protocol and metadata passes over unread.
var filePrefixes = [][]byte{[]byte(`{"add":`), []byte(`{"remove":`), []byte(`{"cdc":`)}

func isFileLine(line []byte) bool {
	for _, p := range filePrefixes {
		if bytes.HasPrefix(line, p) {
			return true
		}
	}
	return false
}

// readCommit gives the actions of a version. With files false, file actions are
// passed over as far as they are recognised by their first letters.
func (l *Log) readCommit(ctx context.Context, version int64, files bool, f func(Action) error) (fileVersion, error) {
	lines := 0
	v, err := l.readLines(ctx, commitName(version), func(line []byte) error {
		lines++
		if !files && isFileLine(line) {
			return nil
		}
		a, err := decodeAction(line)
		if err != nil {
			return err
		}
		return f(a)
	})
	if err == nil && lines == 0 {
		// No writer makes one: it was cut, or is being written by somebody who doesn't
		// put it there as a whole. To take it for a version without changes would be to
		// lose what it is to say.
		err = damaged(l.uri(commitName(version)), errors.New("it is a commit without any action"))
	}
	return v, err
}

// lastCheckpoint is what _last_checkpoint says.
type lastCheckpoint struct {
	Version int64 `json:"version"`
	// Size is the number of actions, NumOfAddFiles those that add.
	Size          int64  `json:"size"`
	Parts         *int   `json:"parts,omitempty"`
	SizeInBytes   *int64 `json:"sizeInBytes,omitempty"`
	NumOfAddFiles *int64 `json:"numOfAddFiles,omitempty"`
}

// readHint reads _last_checkpoint; ok is false when it is missing or says nothing
// that can be used. Only the store's own failures are errors.
func (l *Log) readHint(ctx context.Context) (h lastCheckpoint, ok bool, err error) {
	o, err := l.store.Open(ctx, l.uri(hintName))
	if isNotFound(err) {
		return h, false, nil
	}
	if err != nil {
		return h, false, err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	if o.Size() > maxHint {
		return h, false, nil
	}
	b, err := io.ReadAll(io.NewSectionReader(o, 0, o.Size()))
	if err != nil {
		return h, false, err
	}
	if json.Unmarshal(b, &h) != nil || h.Version < 0 {
		return lastCheckpoint{}, false, nil
	}
	return h, true, nil
}
