package canary

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Marks are texts to look for, in each form that they may have in a message or a
// file: as they are, as base64 at any place of a longer text, and as hex.
type Marks struct{ forms []form }

type form struct {
	name string
	text []byte
}

// NewMarks makes the forms of some texts, of at least 8 bytes each.
func NewMarks(texts ...string) Marks {
	var m Marks
	for _, t := range texts {
		add := func(kind string, b []byte) { m.forms = append(m.forms, form{t + kind, b}) }
		add("", []byte(t))
		add(" in hex", []byte(hex.EncodeToString([]byte(t))))
		add(" in HEX", bytes.ToUpper([]byte(hex.EncodeToString([]byte(t)))))
		for shift := range 3 {
			// What of the code depends on the bytes before and after is cut off.
			code := base64.RawStdEncoding.EncodeToString(append(make([]byte, shift), t...))
			whole := (shift + len(t)) / 3 * 4
			add(" in base64", []byte(code[(shift*8+5)/6:whole]))
		}
	}
	return m
}

// In gives the names of the forms that are in b.
func (m Marks) In(b []byte) []string {
	var found []string
	for _, f := range m.forms {
		if bytes.Contains(b, f.text) {
			found = append(found, f.name)
		}
	}
	return found
}

// window is how much is searched at a time; the next one begins overlap before the
// end of the last.
const (
	window  = 4 << 20
	overlap = 1 << 10
)

var zeros [window]byte

// read searches a stream.
func (m Marks) read(r io.Reader) ([]string, int64, error) {
	var found []string
	buf := make([]byte, 0, window)
	var total int64
	for {
		n, err := io.ReadFull(r, buf[len(buf):window])
		buf = buf[:len(buf)+n]
		total += int64(n)
		if !bytes.Equal(buf, zeros[:len(buf)]) { // as most of a heap is that was never used
			found = append(found, m.In(buf)...)
		}
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = nil
			}
			return found, total, err
		}
		kept := copy(buf, buf[window-overlap:])
		buf = buf[:kept]
	}
}

// Process searches the readable memory of a process, its environment and its command
// line, and says how many bytes that were. It runs on meanwhile.
func (m Marks) Process(pid int) (found []string, searched int64, err error) {
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, 0, err
	}
	defer maps.Close() //nolint:errcheck // it was only read
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return nil, 0, err
	}
	defer mem.Close() //nolint:errcheck // it was only read
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		var from, to int64
		var rights string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &from, &to, &rights); err != nil || rights[0] != 'r' || strings.HasSuffix(lines.Text(), "[vvar]") {
			continue
		}
		// What has gone meanwhile, or can't be read after all, holds nothing.
		more, n, _ := m.read(io.NewSectionReader(mem, from, to-from))
		found, searched = append(found, more...), searched+n
	}
	for _, name := range []string{"environ", "cmdline"} {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
		if err != nil {
			return nil, 0, err
		}
		found, searched = append(found, m.In(raw)...), searched+int64(len(raw))
	}
	slices.Sort(found)
	return slices.Compact(found), searched, lines.Err()
}

// Tree searches the files below a directory, but for those of the names to skip. It
// gives what was found with the file.
func (m Marks) Tree(dir string, skip ...string) (found []string, searched int64, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && (d.IsDir() || !d.Type().IsRegular() || slices.Contains(skip, d.Name())) {
			return nil
		}
		if err != nil {
			return err
		}
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it went meanwhile
		}
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // it was only read
		in, n, err := m.read(f)
		searched += n
		for _, mark := range in {
			found = append(found, path+": "+mark)
		}
		return err
	})
	return found, searched, err
}
