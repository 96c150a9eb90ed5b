package shuffle

import (
	"os"
	"testing"

	"github.com/firn-project/firn/commit"
)

// /dev/full answers each write as a full disk does.
func TestFullDiskIsTyped(t *testing.T) {
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full here")
	}
	defer f.Close()
	_, werr := f.WriteString("x")
	if got := diskError("write", f.Name(), werr); commit.CodeOf(got) != commit.CodeShuffleFull {
		t.Errorf("error is %v", got)
	}
}
