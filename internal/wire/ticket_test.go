package wire_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
)

var ticketTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func keys(t *testing.T) (*wire.Signer, *wire.Verifier) {
	t.Helper()
	pub, priv, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return wire.NewSigner(priv), wire.NewVerifier(pub)
}

func ticket() *firnpb.Ticket {
	return &firnpb.Ticket{
		Purpose: wire.PurposeRead, JobId: "j-1", Stage: 2, Task: 3, AttemptId: "a-1", Output: 4,
		ExecutorId: "e-1", ExpiresUnixMs: ticketTime.Add(time.Minute).UnixMilli(),
	}
}

func TestTexts(t *testing.T) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	text := wire.NewSigner(key).SignText("one", []byte("payload"))
	v := wire.NewVerifier(key.Public().(ed25519.PublicKey))
	if got, err := v.VerifyText("one", text); err != nil || string(got) != "payload" {
		t.Errorf("%q, %v", got, err)
	}
	_, other, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]func() ([]byte, error){
		"another domain": func() ([]byte, error) { return v.VerifyText("on", text) },
		"another key": func() ([]byte, error) {
			return v.VerifyText("one", wire.NewSigner(other).SignText("one", []byte("payload")))
		},
		"another payload": func() ([]byte, error) {
			_, mark, _ := strings.Cut(text, ".")
			return v.VerifyText("one", base64.RawURLEncoding.EncodeToString([]byte("other"))+"."+mark)
		},
		"no signature": func() ([]byte, error) { return v.VerifyText("one", "cGF5bG9hZA") },
		"nothing":      func() ([]byte, error) { return v.VerifyText("one", "") },
		"very long":    func() ([]byte, error) { return v.VerifyText("one", strings.Repeat("a", 1<<20)+"."+text) },
		"no verifier":  func() ([]byte, error) { return wire.NewVerifier(nil).VerifyText("one", text) },
	} {
		if got, err := bad(); err == nil {
			t.Errorf("%s: verified as %q", name, got)
		}
	}
}

func TestTicket(t *testing.T) {
	s, v := keys(t)
	got, err := v.Verify(s.Sign(ticket()), ticketTime)
	if err != nil || !proto.Equal(got, ticket()) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestTicketRefused(t *testing.T) {
	s, v := keys(t)
	other, otherV := keys(t)
	good := s.Sign(ticket())
	changed := func(f func(*firnpb.SignedTicket)) []byte {
		var st firnpb.SignedTicket
		if err := proto.Unmarshal(good, &st); err != nil {
			t.Fatal(err)
		}
		f(&st)
		raw, err := proto.Marshal(&st)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	foreign := ticket()
	foreign.Output = 5
	foreignRaw, err := proto.Marshal(foreign)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		raw []byte
		v   *wire.Verifier
		now time.Time
	}{
		"nothing":             {nil, v, ticketTime},
		"not a message":       {[]byte("\xff\xff"), v, ticketTime},
		"cut":                 {good[:len(good)-1], v, ticketTime},
		"huge":                {make([]byte, 1<<20), v, ticketTime},
		"another signer":      {other.Sign(ticket()), v, ticketTime},
		"another verifier":    {good, otherV, ticketTime},
		"other content":       {changed(func(st *firnpb.SignedTicket) { st.Ticket = foreignRaw }), v, ticketTime},
		"no signature":        {changed(func(st *firnpb.SignedTicket) { st.Signature = nil }), v, ticketTime},
		"changed signature":   {changed(func(st *firnpb.SignedTicket) { st.Signature[0] ^= 1 }), v, ticketTime},
		"expired":             {good, v, ticketTime.Add(time.Hour)},
		"expires just now":    {good, v, ticketTime.Add(time.Minute)},
		"never set to expire": {s.Sign(&firnpb.Ticket{Purpose: wire.PurposeRead}), v, ticketTime},
		"no key":              {good, wire.NewVerifier(nil), ticketTime},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := c.v.Verify(c.raw, c.now)
			// The very same error for all, so that nothing is learnt from it.
			if got != nil || err != wire.ErrTicket { //nolint:errorlint // see above
				t.Errorf("got %v, %v", got, err)
			}
			if !errors.Is(err, wire.ErrTicket) {
				t.Errorf("error is %v", err)
			}
		})
	}
}

// A signature that the key made for another use must not pass for a ticket's.
func TestTicketSignatureHasContext(t *testing.T) {
	pub, priv, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := proto.Marshal(ticket())
	if err != nil {
		t.Fatal(err)
	}
	plain, err := proto.Marshal(&firnpb.SignedTicket{Ticket: raw, Signature: ed25519.Sign(priv, raw)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := wire.NewVerifier(pub).Verify(plain, ticketTime); err == nil {
		t.Error("a bare signature verifies")
	}
}

func FuzzVerify(f *testing.F) {
	pub, priv, err := ed25519.GenerateKey(nil)
	if err != nil {
		f.Fatal(err)
	}
	good := wire.NewSigner(priv).Sign(ticket())
	v := wire.NewVerifier(pub)
	f.Add(good)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := v.Verify(raw, ticketTime)
		if err == nil && !proto.Equal(got, ticket()) {
			t.Fatalf("a forged ticket verifies: %v", got)
		}
	})
}
