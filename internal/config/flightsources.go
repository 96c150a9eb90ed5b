package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/firn-project/firn/internal/flightsql/location"
)

// FlightSource is a Flight SQL engine whose queries statements may read. It holds
// secrets.
type FlightSource struct {
	// URI is grpc+tls://HOST:PORT or grpc://HOST:PORT.
	URI string `yaml:"uri"`
	// Properties are token, or username and password, ca and header.NAME; all but
	// username may be given as a reference: token_file, password_env, ca_file …
	Properties Properties `yaml:"properties"`
	// Locations are other addresses that the engine's answers, and statements, may
	// lead to: HOST:PORT, where HOST may begin with *. and PORT may be *.
	Locations []string `yaml:"locations"`
	// Timeout is how long a query may run until all of its parts are known,
	// ReadTimeout how long a stream of rows may give nothing.
	Timeout     time.Duration `yaml:"timeout"`
	ReadTimeout time.Duration `yaml:"read_timeout"`
	// AllowPlaintext lets the engine, and its locations, be reached without TLS on
	// another machine.
	AllowPlaintext bool `yaml:"allow_plaintext"`
}

// String keeps the secrets of a source out of logs.
func (s FlightSource) String() string { return "Flight SQL source at " + s.URI }

// GoString is String, for %#v.
func (s FlightSource) GoString() string { return s.String() }

// headerProperty begins the names of properties that are headers.
const headerProperty = "header."

// Headers are those that properties give.
func (s FlightSource) Headers() map[string]string {
	var out map[string]string
	for key, value := range s.Properties {
		if name, ok := strings.CutPrefix(key, headerProperty); ok {
			if out == nil {
				out = map[string]string{}
			}
			out[name] = value
		}
	}
	return out
}

func (s FlightSource) validate(name string) error {
	if name == "" || strings.ContainsAny(name, ". \"`/:'") {
		return errors.New(": the name of a source can't be empty or hold dots, blanks, slashes, colons or quotes")
	}
	l, err := location.Parse(s.URI)
	if err != nil {
		return fmt.Errorf(".uri: %q: %w", MaskURI(s.URI), err)
	}
	if !l.TLS && !l.Loopback() && !s.AllowPlaintext {
		return fmt.Errorf(".uri: %q: what it is shown, and its rows, would go over the network in plaintext; want grpc+tls://, or allow_plaintext: true", s.URI)
	}
	for i, p := range s.Locations {
		if err := location.CheckPattern(p); err != nil {
			return fmt.Errorf(".locations[%d]: %w", i, err)
		}
	}
	has := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(s.Properties)) {
		property, _ := SplitReference(key)
		switch header := strings.TrimPrefix(property, headerProperty); {
		case slices.Contains([]string{"token", "username", "password", "ca"}, property):
			has[property] = true
		case header != property && header != "" && !strings.EqualFold(header, "authorization"):
		default:
			return fmt.Errorf(".properties.%s: unknown; there are token, username, password, ca and header.NAME, and the same with _file, _env or _command", key)
		}
	}
	switch {
	case has["token"] && (has["username"] || has["password"]):
		return errors.New(".properties: token and username exclude each other")
	case has["username"] != has["password"]:
		return errors.New(".properties: username and password go together")
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"timeout", s.Timeout}, {"read_timeout", s.ReadTimeout}} {
		if d.value < 0 {
			return fmt.Errorf(".%s: %s: want more than 0", d.name, d.value)
		}
	}
	return nil
}

// resolveFlight puts the values of references in their places.
func (s *Scheduler) resolveFlight(getenv func(string) (string, bool)) error {
	for _, name := range slices.Sorted(maps.Keys(s.Sources.FlightSQL)) {
		f := s.Sources.FlightSQL[name]
		var err error
		if f.Properties, err = ownProperties(f.Properties, getenv); err != nil {
			return fmt.Errorf("sources.flight_sql.%s.%w", name, err)
		}
		s.Sources.FlightSQL[name] = f
	}
	return nil
}

func (s Scheduler) validateFlight() error {
	for _, name := range slices.Sorted(maps.Keys(s.Sources.FlightSQL)) {
		if err := s.Sources.FlightSQL[name].validate(name); err != nil {
			return fmt.Errorf("sources.flight_sql.%s%w", name, err)
		}
	}
	return nil
}
