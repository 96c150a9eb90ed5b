package config

import (
	"testing"

	"github.com/firn-project/firn/commit"
)

// FuzzScheduler: no file makes the reader panic, and one that was taken is valid.
func FuzzScheduler(f *testing.F) {
	f.Add([]byte("listen: 127.0.0.1:1\ncatalogs: {a: {type: sql, uri: 'sqlite:///x', warehouse: w, properties: {k: '${HOME}'}}}\nexecutors: {wait: 2s}"))
	f.Add([]byte("tls: {cert: a, key: b}\nsources: {local: {allow: [/x]}}"))
	f.Add([]byte("&a [*a]"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := parseScheduler(raw, func(string) (string, bool) { return "x", true })
		if err == nil && s.Validate() != nil {
			t.Error("an invalid file was taken")
		}
		_ = s.FileValues()
	})
}

// FuzzParseSize: what is read is a size.
func FuzzParseSize(f *testing.F) {
	f.Add("2GiB")
	f.Add("NaN")
	f.Add("1e400tb")
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := ParseSize(s); err == nil && n < 0 {
			t.Errorf("%q is %d", s, n)
		} else if err != nil && commit.CodeOf(err) != "" {
			t.Errorf("%q: %v", s, err)
		}
	})
}
