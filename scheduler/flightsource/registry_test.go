package flightsource_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/flightsql/flightsqltest"
	"github.com/firn-project/firn/scheduler/flightsource"
	"github.com/firn-project/firn/sql"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var configs = []flightsource.Config{
	{Name: "lake", URI: "grpc+tls://coord.example:443", Token: "canary", Locations: []string{"*.lake.example:443"}},
	{Name: "open", URI: "grpc://127.0.0.1:1"},
	{Name: "twin", URI: "grpc://127.0.0.1:2"},
	{Name: "twin2", URI: "grpc://127.0.0.1:2"},
}

func open(t *testing.T, path string, configs ...flightsource.Config) *flightsource.Registry {
	t.Helper()
	r, err := flightsource.Open(flightsource.Options{Configs: configs, State: path})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestAddresses: an address leads to the entry that it is of, with that entry's
// secrets, and to no other.
func TestAddresses(t *testing.T) {
	r := open(t, "", configs...)
	for name, want := range map[string]string{
		"lake": "Bearer canary grpc+tls://coord.example:443", "grpc+tls://COORD.example:443": "Bearer canary grpc+tls://coord.example:443",
		"grpc+tls://b.lake.example:443": "Bearer canary grpc+tls://b.lake.example:443", "grpc://127.0.0.1:1": " grpc://127.0.0.1:1",
		"grpc://b.lake.example:443": "FIRN-7501", "grpc+tls://lake.example:443": "FIRN-7501", "grpc://coord.example:443": "FIRN-7501",
		"grpc://127.0.0.1:2": "FIRN-7501", "grpc+tls://127.0.0.1:9": "FIRN-7501", "grpc+unix:///x": "FIRN-7501", "nope": "FIRN-7500", "": "FIRN-7500",
	} {
		a, err := r.Access(t.Context(), name, "")
		got := a.Authorization + " " + a.URI
		if err != nil {
			got = string(commit.CodeOf(err))
		}
		if got != want {
			t.Errorf("%s: got %s (%v), want %s", name, got, err, want)
		}
	}
}

// TestMistakenAddress: no scheme, or another one, makes no address, and the error says what does.
func TestMistakenAddress(t *testing.T) {
	r := open(t, "", configs...)
	for name, hint := range map[string]string{"coord.example:443": "grpc+tls://coord.example:443", "http://coord.example:443": "Write grpc+tls://HOST:PORT"} {
		_, err := r.Access(t.Context(), name, "")
		var e *commit.Error
		if !errors.As(err, &e) || !strings.Contains(e.Hint, hint) {
			t.Errorf("%s: got %v, want a hint with %s", name, err, hint)
		}
	}
}

// TestMadeSourcesAreKept: what CREATE SOURCE made is there in the next process, without
// a secret, and works as long as the configuration has its entry.
func TestMadeSourcesAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sources.json")
	r := open(t, path, configs...)
	create := func(r *flightsource.Registry, name string, props map[string]string) error {
		props["type"] = "flight_sql"
		return r.CreateSource(t.Context(), sql.SourceDef{Name: name, Properties: props})
	}
	for name, props := range map[string]map[string]string{
		"a": {"secret": "lake"}, "b": {"uri": "grpc+tls://b.lake.example:443", "secret": "lake"}, "c": {"uri": "grpc://127.0.0.1:1"},
	} {
		if err := create(r, name, props); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for name, props := range map[string]map[string]string{
		"x y": {"secret": "lake"}, "d": {"uri": "grpc://b.lake.example:443", "secret": "lake"}, "e": {"uri": "grpc+tls://b.lake.example:443", "secret": "open"},
		"lake": {"secret": "lake"}, "a": {"secret": "lake"}, "f": {},
	} {
		if err := create(r, name, props); err == nil {
			t.Errorf("%s %v was made", name, props)
		}
	}
	raw, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(raw), "canary") {
		t.Errorf("kept %s, %v", raw, err)
	}
	if i, err := os.Stat(path); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", i.Mode(), err)
	}
	again := open(t, path, configs...)
	infos, err := again.SourceInfos(t.Context())
	if err != nil || len(infos) != len(configs)+3 || infos[0] != (sql.SourceInfo{Name: "a", Type: "flight_sql", URI: "grpc+tls://coord.example:443", Secret: "lake", Origin: "statement"}) {
		t.Errorf("got %+v, %v", infos, err)
	}
	if a, err := again.Access(t.Context(), "b", ""); err != nil || a.URI != "grpc+tls://b.lake.example:443" || a.Authorization != "Bearer canary" {
		t.Errorf("got %v, %v", a.URI, err)
	}
	if err := again.DropSource(t.Context(), "b", false); err != nil {
		t.Error(err)
	}
	without := open(t, path)
	for name, code := range map[string]commit.Code{"a": commit.CodeFlightSource, "b": commit.CodeFlightSourceUnknown, "c": commit.CodeFlightNotAllowed} {
		if _, err := without.Access(t.Context(), name, ""); commit.CodeOf(err) != code {
			t.Errorf("%s without its entry: %v, want %s", name, err, code)
		}
	}
	if err := os.WriteFile(path, []byte(`{"version": 9}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := flightsource.Open(flightsource.Options{State: path}); commit.CodeOf(err) != commit.CodeConfig {
		t.Errorf("another form of the file: %v", err)
	}
}

// TestHiddenSource: a source of a statement that the configuration has as well by now is
// listed once, as the configuration's, and can be dropped.
func TestHiddenSource(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sources.json")
	props := map[string]string{"type": "flight_sql", "secret": "open"}
	if err := open(t, path, configs...).CreateSource(t.Context(), sql.SourceDef{Name: "both", Properties: props}); err != nil {
		t.Fatal(err)
	}
	r := open(t, path, flightsource.Config{Name: "both", URI: "grpc://127.0.0.1:3"}, configs[1])
	infos, err := r.SourceInfos(t.Context())
	if err != nil || len(infos) != 2 || infos[0] != (sql.SourceInfo{Name: "both", Type: "flight_sql", URI: "grpc://127.0.0.1:3", Origin: "configuration"}) {
		t.Errorf("got %+v, %v", infos, err)
	}
	if err := r.DropSource(t.Context(), "both", false); err != nil {
		t.Error(err)
	}
	if err := r.DropSource(t.Context(), "both", true); commit.CodeOf(err) != commit.CodeFlightSource {
		t.Errorf("dropped what the configuration has: %v", err)
	}
	if raw, err := os.ReadFile(path); err != nil || strings.Contains(string(raw), "both") {
		t.Errorf("kept %s, %v", raw, err)
	}
}

// TestTokensAreBounded: tokens are kept for so many sources, and for none that is gone or
// that lets nobody in.
func TestTokensAreBounded(t *testing.T) {
	s := &flightsqltest.Server{User: "u", Password: "p"}
	addr, stop, err := s.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	c := flightsource.Config{Name: "e", URI: "grpc://" + addr, User: "u", Password: "p", Locations: []string{"localhost:*"}}
	bad := c
	bad.Name, bad.Password, bad.Locations = "bad", "another", nil
	r := open(t, filepath.Join(t.TempDir(), "sources.json"), c, bad)
	r.SetMaxShown(3)
	access := func(name string, code commit.Code, kept int) {
		t.Helper()
		if _, err := r.Access(t.Context(), name, ""); commit.CodeOf(err) != code {
			t.Errorf("%s: %v, want %q", name, err, code)
		}
		if got := r.Shown(); got != kept {
			t.Errorf("after %s tokens are kept for %d, want %d", name, got, kept)
		}
	}
	access("bad", commit.CodeFlightAuth, 0)
	access("e", "", 1)
	if err := r.CreateSource(t.Context(), sql.SourceDef{Name: "made", Properties: map[string]string{"type": "flight_sql", "secret": "e"}}); err != nil {
		t.Fatal(err)
	}
	access("made", "", 2)
	if err := r.DropSource(t.Context(), "made", false); err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(addr, ":")
	for i, host := range []string{"localhost", "Localhost", "LOcalhost", "LOCalhost"} {
		access("grpc://"+host+":"+port, "", min(i+2, 3))
	}
}
