package wire

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/firn-project/firn/internal/wire/firnpb"
	"google.golang.org/protobuf/proto"
)

// Purposes of a ticket.
const (
	PurposeRead   = "read"
	PurposeUpload = "upload"
)

// ErrTicket is the answer to every ticket that doesn't hold: malformed, forged,
// changed or expired. It is one constant so that a forger learns nothing.
var ErrTicket = errors.New("the ticket isn't valid")

// ticketContext separates signatures of tickets from any other use of the key.
var ticketContext = []byte("firn.ticket.v1\x00")

// maxTicketLen is far above any real ticket.
const maxTicketLen = 4 << 10

// Signer signs tickets. Only the scheduler has one. It is safe for concurrent
// use.
type Signer struct{ key ed25519.PrivateKey }

// NewSigner makes a signer from the scheduler's private key.
func NewSigner(key ed25519.PrivateKey) *Signer { return &Signer{key: key} }

// Sign returns the serialised, signed ticket. The signature covers the bytes
// that are sent, so nothing depends on how protobuf orders fields.
func (s *Signer) Sign(t *firnpb.Ticket) []byte {
	// Marshal fails on nothing but strings that aren't UTF-8; such a ticket
	// can't hold.
	raw, err := proto.Marshal(t)
	if err != nil {
		return nil
	}
	out, err := proto.Marshal(&firnpb.SignedTicket{
		Ticket:    raw,
		Signature: ed25519.Sign(s.key, slices.Concat(ticketContext, raw)),
	})
	if err != nil {
		return nil
	}
	return out
}

// SignText signs a payload for one use of the key, named by its domain: a text of the
// payload and its signature, fit for a header.
func (s *Signer) SignText(domain string, payload []byte) string {
	enc := base64.RawURLEncoding
	return enc.EncodeToString(payload) + "." + enc.EncodeToString(ed25519.Sign(s.key, signedText(domain, payload)))
}

// signedText is what is signed: no ticket and no other domain's text has the bytes.
func signedText(domain string, payload []byte) []byte {
	return slices.Concat([]byte(domain), []byte{0}, payload)
}

// VerifyText gives the payload of a text that SignText made for the domain, else
// ErrTicket.
func (v *Verifier) VerifyText(domain, text string) ([]byte, error) {
	enc := base64.RawURLEncoding.Strict()
	body, mark, ok := strings.Cut(text, ".")
	if !ok || len(text) > maxTicketLen || len(v.key) != ed25519.PublicKeySize {
		return nil, ErrTicket
	}
	payload, err := enc.DecodeString(body)
	if err != nil {
		return nil, ErrTicket
	}
	signature, err := enc.DecodeString(mark)
	if err != nil || !ed25519.Verify(v.key, signedText(domain, payload), signature) {
		return nil, ErrTicket
	}
	return payload, nil
}

// Verifier checks tickets with the public half of the scheduler's key. It is
// safe for concurrent use.
type Verifier struct{ key ed25519.PublicKey }

// NewVerifier makes a verifier. With a key of the wrong length nothing verifies.
func NewVerifier(key ed25519.PublicKey) *Verifier { return &Verifier{key: key} }

// Verify returns the ticket if the scheduler signed it and it hasn't expired at
// now, else ErrTicket. Purpose and executor are for the caller to check.
func (v *Verifier) Verify(raw []byte, now time.Time) (*firnpb.Ticket, error) {
	var signed firnpb.SignedTicket
	if len(v.key) != ed25519.PublicKeySize || len(raw) > maxTicketLen || proto.Unmarshal(raw, &signed) != nil {
		return nil, ErrTicket
	}
	if !ed25519.Verify(v.key, slices.Concat(ticketContext, signed.GetTicket()), signed.GetSignature()) {
		return nil, ErrTicket
	}
	var t firnpb.Ticket
	if proto.Unmarshal(signed.GetTicket(), &t) != nil {
		return nil, ErrTicket
	}
	if !now.Before(time.UnixMilli(t.GetExpiresUnixMs())) {
		return nil, ErrTicket
	}
	return &t, nil
}
