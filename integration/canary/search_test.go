package canary_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/firn-project/firn/integration/canary"
)

// TestSearch: a text is found in each of its forms, wherever it stands, and another
// one isn't.
func TestSearch(t *testing.T) {
	const secret = "kNr7Search-secret"
	m := canary.NewMarks(secret)
	for shift := range 7 {
		around := strings.Repeat("x", shift) + secret + strings.Repeat("y", shift)
		for kind, text := range map[string]string{
			"plain": around, "base64": base64.StdEncoding.EncodeToString([]byte(around)), "hex": hex.EncodeToString([]byte(around)),
			"base64 for URLs": base64.RawURLEncoding.EncodeToString([]byte(around)),
		} {
			if len(m.In([]byte(text))) == 0 {
				t.Errorf("%s after %d bytes isn't found in %q", kind, shift, text)
			}
		}
	}
	if f := m.In([]byte("kNr7Search-secre")); len(f) > 0 {
		t.Errorf("found %q in another text", f)
	}

	// In a file, also across the border of what is read at once.
	dir := t.TempDir()
	for _, at := range []int{0, 4<<20 - 5, 9 << 20} {
		raw := bytes.Repeat([]byte{'.'}, 10<<20)
		copy(raw[at:], secret)
		if err := os.WriteFile(filepath.Join(dir, "f"), raw, 0o600); err != nil {
			t.Fatal(err)
		}
		if found, n, err := m.Tree(dir); err != nil || len(found) == 0 || n != int64(len(raw)) {
			t.Errorf("at %d: %v in %d bytes, %v", at, found, n, err)
		}
		if found, _, err := m.Tree(dir, "f"); err != nil || len(found) != 0 {
			t.Errorf("skipped: %v, %v", found, err)
		}
	}
}
