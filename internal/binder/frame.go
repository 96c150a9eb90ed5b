package binder

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Kinds of frames: requests, then answers.
const (
	opParse  = 'p' // text to tree
	opFormat = 'f' // tree to text
	opBind   = 'b' // JSON of plan.ProbeRequest to that of plan.ProbeResult
	opHello  = 'h' // what the process couldn't give up; see confinement

	answered = '+'
	// complained: a syntax error; its offset in the text as 8 bytes, then its
	// message.
	complained = '?'
	// failed: a firnpb.TaskError.
	failed = '!'
)

// maxFrame bounds a frame's content in bytes. The tree of a statement is about 30
// times as long as its text.
const maxFrame = 512 << 20

// writeFrame sends one frame: its kind, the length of its content, the content.
func writeFrame(w io.Writer, kind byte, content []byte) error {
	if len(content) > maxFrame {
		return fmt.Errorf("a frame of %d bytes is too long; at most %d", len(content), maxFrame)
	}
	var head [5]byte
	head[0] = kind
	binary.BigEndian.PutUint32(head[1:], uint32(len(content)))
	if _, err := w.Write(head[:]); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}

// readFrame reads one frame. The end of the stream before a frame is io.EOF. The
// memory that it takes grows with what comes, not with what is announced.
func readFrame(r io.Reader) (kind byte, content []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := int64(binary.BigEndian.Uint32(head[1:]))
	if n > maxFrame {
		return 0, nil, fmt.Errorf("a frame of %d bytes is too long; at most %d", n, maxFrame)
	}
	const atOnce = 1 << 20
	if n <= atOnce {
		content = make([]byte, n)
		_, err = io.ReadFull(r, content)
	} else if content, err = io.ReadAll(io.LimitReader(r, n)); err == nil && int64(len(content)) < n {
		err = io.ErrUnexpectedEOF
	}
	if err == io.EOF { //nolint:errorlint // io.ReadFull's own
		err = io.ErrUnexpectedEOF
	}
	return head[0], content, err
}
