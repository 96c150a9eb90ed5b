package openwrite_test

import (
	"strings"
	"testing"

	"github.com/firn-project/firn/internal/wire/openwrite"
)

// FuzzText: handles, requests and faults come from elsewhere. Whatever they are, reading
// them ends, and a handle that was read is written as it was.
func FuzzText(f *testing.F) {
	f.Add(openwrite.Handle{WriteID: "j-1", Attempt: "a", Digest: strings.Repeat("0", 64)}.String())
	f.Add(`{"version":1,"write_id":"j","handles":["a"]}`)
	f.Add(`x firn-error:{"code":"FIRN-6040"} y`)
	f.Fuzz(func(t *testing.T, s string) {
		if h, err := openwrite.ParseHandle(s); err == nil && h.String() != s {
			t.Errorf("%q is read as %q", s, h)
		}
		var c openwrite.Commit
		if err := openwrite.Decode([]byte(s), &c); err == nil && c.Version != openwrite.Version {
			t.Errorf("version %d was taken", c.Version)
		}
		if fault := openwrite.FaultIn(s); fault != nil && fault.Err() == nil {
			t.Error("a fault that is no error")
		}
	})
}
