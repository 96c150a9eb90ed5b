package commit

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// Token identifies one commit unit for ever. It is a UUID of version 8 made
// from the SHA-256 of everything that makes the unit what it is, so that any
// process that knows the key can compute it again, after any crash.
type Token [16]byte

// TokenInput is what a token is made from.
type TokenInput struct {
	// Namespace separates principals, so that one user's key never answers
	// for another's.
	Namespace string
	// Key is the idempotency key of the job.
	Key string
	// TableUUID is the identity of the table, not its name.
	TableUUID string
	// Branch is the branch that the unit commits to; "main" by default.
	Branch string
	// Unit numbers the commit units that one job has for one table and branch.
	Unit int
}

// NewToken derives the token of a commit unit. Each field is hashed with its
// length, so that no two inputs share an encoding.
func NewToken(in TokenInput) Token {
	h := sha256.New()
	write := func(s string) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write([]byte(s))
	}
	write("firn.token.v1")
	write(in.Namespace)
	write(in.Key)
	write(in.TableUUID)
	write(in.Branch)
	var unit [8]byte
	binary.BigEndian.PutUint64(unit[:], uint64(in.Unit))
	h.Write(unit[:])
	var t Token
	copy(t[:], h.Sum(nil))
	t[6] = t[6]&0x0f | 0x80
	t[8] = t[8]&0x3f | 0x80
	return t
}

// String returns the token in the usual form of a UUID.
func (t Token) String() string { return string(t.appendTo(make([]byte, 0, 36))) }

// appendTo appends what String returns.
func (t Token) appendTo(b []byte) []byte {
	b = hex.AppendEncode(b, t[:4])
	for _, part := range [][]byte{t[4:6], t[6:8], t[8:10], t[10:]} {
		b = hex.AppendEncode(append(b, '-'), part)
	}
	return b
}

// ParseToken reads what String wrote.
func ParseToken(s string) (Token, error) {
	var t Token
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return t, fmt.Errorf("token %q: not of the form of a UUID", s)
	}
	b, err := hex.DecodeString(s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:])
	if err != nil {
		return t, fmt.Errorf("token %q: %w", s, err)
	}
	copy(t[:], b)
	return t, nil
}

// Digest is the SHA-256 of a unit's sealed content. The same token with another
// digest was committed by another submission.
type Digest [32]byte

// String returns the digest in lower-case hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// ParseDigest reads what String wrote.
func ParseDigest(s string) (Digest, error) {
	var d Digest
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(d) {
		return d, fmt.Errorf("digest %q: want 64 hexadecimal digits", s)
	}
	copy(d[:], b)
	return d, nil
}
