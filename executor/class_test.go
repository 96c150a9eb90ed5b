package executor

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"syscall"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/duckdb"
	"github.com/firn-project/firn/internal/wire"
)

// TestW13_ClassesOfTaskErrors: what may pass is tried again by another attempt, and
// what is wrong with the statement or its data isn't. What a store says of a request
// it repeats itself; only what it says at last comes here.
func TestW13_ClassesOfTaskErrors(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"a store that is throttled or broken for long": {&commit.Error{Code: commit.CodeStorage, Op: "write", Cause: errors.New("503 SlowDown")}, wire.ClassRetryable},
		"a connection that broke":                      {&net.OpError{Op: "read", Err: syscall.ECONNRESET}, wire.ClassRetryable},
		"a call that took too long":                    {context.DeadlineExceeded, wire.ClassRetryable},
		"the executor shuts down":                      {errShutdown, wire.ClassRetryable},
		"lost shuffle output":                          {&wire.LostInputError{Cause: fs.ErrNotExist}, wire.ClassRetryable},
		"a full disk":                                  {&commit.Error{Code: commit.CodeShuffleFull, Op: "write"}, wire.ClassRetryable},
		"a source that can't be read just now":         {&commit.Error{Code: commit.CodeSourceRead, Op: "read"}, wire.ClassRetryable},
		"no right to write":                            {&commit.Error{Code: commit.CodeStoragePermission, Op: "write", Cause: errors.New("403")}, wire.ClassNotRetryable},
		"a file that isn't there":                      {&commit.Error{Code: commit.CodeSourceNotFound, Op: "read"}, wire.ClassNotRetryable},
		"a damaged file":                               {&commit.Error{Code: commit.CodeBadFile, Op: "read"}, wire.ClassNotRetryable},
		"a value that can't be cast":                   {&commit.Error{Code: commit.CodeQueryFailed, Op: "run query", Cause: &duckdb.Error{Type: "Conversion"}}, wire.ClassNotRetryable},
		"rows that were rejected":                      {&commit.Error{Code: commit.CodeRejectedRows, Op: "read"}, wire.ClassNotRetryable},
		"a machine that is out of memory":              {&commit.Error{Code: commit.CodeMachineMemory, Op: "run query"}, wire.ClassRetryable},
		"a query that needs more memory than there is": {&commit.Error{Code: commit.CodeQueryMemory, Op: "run query"}, wire.ClassNotRetryable},
		"a panic": {&commit.Error{Code: commit.CodeTaskPanic, Op: "run"}, wire.ClassNotRetryable},
	} {
		if got := class(c.err); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		// The class that the scheduler hears is that one, and the code survives.
		p := wire.TaskErrorToProto(c.err)
		if got := commit.CodeOf(wire.TaskErrorFromProto(p)); got != commit.CodeOf(c.err) {
			t.Errorf("%s: code %s arrives as %s", name, commit.CodeOf(c.err), got)
		}
	}
}
