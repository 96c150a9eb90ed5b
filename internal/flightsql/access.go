package flightsql

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/flightsql/location"
)

// Access says how an engine is reached. Executors get it from the scheduler while
// they run tasks of a job that reads the engine. It is a secret.
type Access struct {
	// Name is the source's, for messages.
	Name string `json:"name"`
	URI  string `json:"uri"`
	// Authorization is the header that is shown to the engine; empty for none.
	Authorization string `json:"authorization,omitempty"`
	// Headers are others.
	Headers map[string]string `json:"headers,omitempty"`
	// CA has the certificates, in PEM, of those who sign the engine's; empty for the
	// system's.
	CA []byte `json:"ca,omitempty"`
	// Locations are the other addresses that the engine's answers may lead to:
	// HOST:PORT, where HOST may begin with *. and PORT may be *.
	Locations []string `json:"locations,omitempty"`
	// AllowPlaintext lets answers lead to locations on other machines without TLS.
	AllowPlaintext bool `json:"allow_plaintext,omitempty"`
	// ReadTimeout is how long a stream may give nothing; DefaultReadTimeout when 0.
	ReadTimeout time.Duration `json:"read_timeout,omitempty"`
}

// DefaultReadTimeout is how long a stream may give nothing.
const DefaultReadTimeout = 5 * time.Minute

// String keeps the secrets out of logs.
func (a Access) String() string { return "Flight SQL source " + a.Name }

// GoString is String, for %#v.
func (a Access) GoString() string { return a.String() }

// Fingerprint names what an Access shows, so that somebody can say that it has ended
// without repeating it.
func (a Access) Fingerprint() string {
	sum := sha256.Sum256([]byte(a.Authorization))
	return hex.EncodeToString(sum[:8])
}

// reuse is the location that means the connection by which it came.
const reuse = "arrow-flight-reuse-connection"

// Permits says why the engine's answers may not lead to a location; nil when they
// may. What is shown to an engine over TLS isn't shown without it, and another machine
// is reached without it only if that is allowed.
func (a Access) Permits(l location.Location) error {
	home, err := location.Parse(a.URI)
	if err != nil {
		return err
	}
	switch {
	case l == home:
		return nil
	case home.TLS && !l.TLS:
		return errors.New("it is without TLS, and the source's own address is with it")
	case !l.TLS && !l.Loopback() && !a.AllowPlaintext:
		return errors.New("it is another machine without TLS, and the source hasn't allow_plaintext: true")
	case l.Host == home.Host && l.Port == home.Port, slices.ContainsFunc(a.Locations, l.Matches):
		return nil
	}
	return fmt.Errorf("it is neither the source's own address, %s, nor one of its locations", home)
}

// places are where an endpoint with these locations may be read, in their order, and
// what is to say about the first few others.
func (a Access) places(locations []string) (out []location.Location, refused []string, err error) {
	home, err := location.Parse(a.URI)
	if err != nil {
		return nil, nil, a.notAllowed(a.URI, err)
	}
	if len(locations) == 0 {
		return []location.Location{home}, nil, nil
	}
	var first error
	for _, uri := range locations {
		l := home
		if scheme, _, _ := strings.Cut(uri, ":"); !strings.EqualFold(scheme, reuse) {
			l, err = location.Parse(uri)
			if err == nil {
				err = a.Permits(l)
			}
			if err != nil {
				if first == nil {
					first = a.notAllowed(uri, err)
				}
				if len(refused) < maxRefused {
					refused = append(refused, shorten(uri)+" isn't asked: "+shorten(err.Error()))
				}
				continue
			}
		}
		if !slices.Contains(out, l) {
			out = append(out, l)
		}
	}
	if len(out) == 0 {
		return nil, nil, first
	}
	return out, refused, nil
}

// maxRefused is how many locations that aren't asked are named.
const maxRefused = 3

func (a Access) notAllowed(uri string, cause error) error {
	return &commit.Error{
		Code: commit.CodeFlightNotAllowed, Op: "follow source " + a.Name + " to", Object: shorten(uri), Cause: cause,
		Tried: "nothing was sent there",
		Hint:  "If the engine's answers may lead there, add the address to the locations of the source in sources.flight_sql of the scheduler's configuration.",
	}
}

// shorten keeps what an engine says to a length for messages.
func shorten(s string) string {
	const most = 500
	s = strings.ToValidUTF8(s, "\uFFFD")
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
