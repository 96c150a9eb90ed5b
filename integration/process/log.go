package process

import (
	"bytes"
	"strings"
	"sync"
	"time"
)

// log is what a process has written to stderr. It is safe for concurrent use.
type log struct {
	mu  sync.Mutex
	buf bytes.Buffer
	// more is closed and replaced with each write.
	more chan struct{}
}

func newLog() *log { return &log{more: make(chan struct{})} }

// Write implements io.Writer.
func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.more)
	l.more = make(chan struct{})
	return l.buf.Write(p)
}

func (l *log) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *log) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Len()
}

// await returns the first whole line after mark that fits.
func (l *log) await(mark int, limit time.Duration, fits func(string) bool) (string, bool) {
	late := time.NewTimer(limit)
	defer late.Stop()
	for {
		l.mu.Lock()
		fresh, more := l.buf.String()[mark:], l.more
		l.mu.Unlock()
		for line := range strings.Lines(fresh) {
			if strings.HasSuffix(line, "\n") && fits(line) {
				return line, true
			}
		}
		select {
		case <-more:
		case <-late.C:
			return "", false
		}
	}
}
