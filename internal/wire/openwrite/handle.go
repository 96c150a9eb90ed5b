package openwrite

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
)

// Handle stands for one manifest that was handed in: the driver of a write collects
// those of the attempts that won. It is bound to the content by its digest and to
// its write by the id, and is worth nothing without the record of the manifest.
type Handle struct {
	WriteID string `json:"w"`
	Attempt string `json:"a"`
	// Digest is SHA-256 of the manifest's content, in hexadecimal.
	Digest string `json:"d"`
}

// handlePrefix tells what a text is, and of which version.
const handlePrefix = "fh1."

// maxHandle is above any real handle.
const maxHandle = 1 << 10

var errHandle = errors.New("it isn't a handle that this protocol gives out")

// String is the handle as it travels.
func (h Handle) String() string {
	raw, err := json.Marshal(h)
	if err != nil { // three strings
		return ""
	}
	return handlePrefix + base64.RawURLEncoding.EncodeToString(raw)
}

// ParseHandle reads a handle.
func ParseHandle(text string) (Handle, error) {
	var h Handle
	body, ok := strings.CutPrefix(text, handlePrefix)
	if !ok || len(text) > maxHandle {
		return h, errHandle
	}
	raw, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil || strict(raw, &h) != nil || !ValidAttempt(h.Attempt) || h.WriteID == "" {
		return Handle{}, errHandle
	}
	if sum, err := hex.DecodeString(h.Digest); err != nil || len(sum) != sha256.Size {
		return Handle{}, errHandle
	}
	if h.String() != text {
		return Handle{}, errHandle // two spellings of one handle would be two handles
	}
	return h, nil
}

var attemptID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.]{0,99}$`)

// ValidAttempt says whether a text may be an attempt's id: one to a hundred letters,
// digits, underscores and dots, the first of them a letter or a digit. There is no
// dash in it, so that the first dash of a file's name ends it.
func ValidAttempt(id string) bool { return attemptID.MatchString(id) && !strings.Contains(id, "..") }

// SealOf sorts handles, drops those that stand twice, and gives their digest: what a
// write is sealed with.
func SealOf(handles []string) (sorted []string, digest string) {
	sorted = slices.Compact(slices.Sorted(slices.Values(handles)))
	h := sha256.New()
	for _, s := range sorted {
		h.Write([]byte(s))
		h.Write([]byte{'\n'})
	}
	return sorted, hex.EncodeToString(h.Sum(nil))
}
