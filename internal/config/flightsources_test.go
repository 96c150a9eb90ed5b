package config

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// TestFlightSources: what a file says of Flight SQL engines, with its references
// resolved, and what is wrong with one.
func TestFlightSources(t *testing.T) {
	secret := write(t, "password", "CANARY\n")
	path := write(t, "c.yaml", `sources:
  flight_sql:
    warehouse:
      uri: grpc+tls://dremio.example.com:32010
      properties: {username: firn, password_file: "`+secret+`", header.x-tenant: air}
      locations: ["*.workers.example.com:32010", "10.0.0.1:*"]
      timeout: 2h
    local: {uri: "grpc://127.0.0.1:1", properties: {token: {env: TOKEN}}}
`)
	s, err := LoadScheduler(path, env(map[string]string{"TOKEN": "CANARY"}))
	if err != nil {
		t.Fatal(err)
	}
	w := s.Sources.FlightSQL["warehouse"]
	if w.Properties["password"] != "CANARY" || w.Headers()["x-tenant"] != "air" || w.Timeout != 2*time.Hour || len(w.Locations) != 2 || s.Sources.FlightSQL["local"].Properties["token"] != "CANARY" {
		t.Errorf("got %#v", w.Properties)
	}
	if strings.Contains(w.String()+w.GoString(), "CANARY") {
		t.Error("a secret is printed")
	}
	shown, err := View(pflag.NewFlagSet("x", pflag.ContinueOnError), pflag.NewFlagSet("y", pflag.ContinueOnError), nil,
		write(t, "d.yaml", "sources: {flight_sql: {e: {uri: grpc+tls://x.example:1, properties: {token: CANARY, header.a: CANARY}}}}\n"), env(nil))
	if err != nil || len(shown) != 3 {
		t.Fatalf("got %v, %v", shown, err)
	}
	for _, v := range shown {
		if strings.Contains(v.Value+v.Origin, "CANARY") {
			t.Errorf("shown: %+v", v)
		}
	}
	for want, entry := range map[string]string{
		"scheme":                    "{uri: http://x.example:1}",
		"nothing behind it":         "{uri: grpc+tls://x.example:1/path}",
		"plaintext":                 "{uri: grpc://x.example:1}",
		"first labels":              "{uri: grpc+tls://x.example:1, locations: ['x.*.example:1']}",
		"HOST:PORT":                 "{uri: grpc+tls://x.example:1, locations: [x.example]}",
		"exclude each other":        "{uri: grpc+tls://x.example:1, properties: {token: a, username: b, password: c}}",
		"go together":               "{uri: grpc+tls://x.example:1, properties: {username: b}}",
		"unknown":                   "{uri: grpc+tls://x.example:1, properties: {tokn: a}}",
		"header.Authorization":      "{uri: grpc+tls://x.example:1, properties: {header.Authorization: a}}",
		"users and passwords stand": "{uri: grpc+tls://u:p@x.example:1}",
		"more than 0":               "{uri: grpc+tls://x.example:1, timeout: -1s}",
		"did you mean locations":    "{uri: grpc+tls://x.example:1, location: [a]}",
	} {
		_, err := LoadScheduler(write(t, "bad.yaml", "sources: {flight_sql: {e: "+entry+"}}\n"), env(nil))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", entry, err, want)
		}
	}
	if _, err := LoadScheduler(write(t, "bad.yaml", "sources: {flight_sql: {'a.b': {uri: grpc+tls://x.example:1}}}\n"), env(nil)); err == nil {
		t.Error("a name with a dot is taken")
	}
}
