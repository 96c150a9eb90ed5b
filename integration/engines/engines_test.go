//go:build interop

package engines_test

import (
	"os"
	"os/exec"
	"testing"
)

// module is the directory of the client that the tests and the docs use.
const module = "../../examples/python"

// python is the interpreter of the environment that has the engines.
func python(t *testing.T) string {
	t.Helper()
	p := os.Getenv("FIRN_ENGINES_PYTHON")
	if p == "" {
		t.Fatal("FIRN_ENGINES_PYTHON is not set: run `make interop-engines`")
	}
	return p
}

// TestPartitionTexts compares the partition values that the example's client makes
// with PyIceberg's.
func TestPartitionTexts(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), python(t), "texts.py", module).CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}
