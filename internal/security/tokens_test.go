package security

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/firn-project/firn/commit"
)

const clientMethod, executorMethod = "/firn.v1.ClientService/Execute", "/firn.v1.SchedulerService/Register"

func call(t *testing.T, header ...string) context.Context {
	t.Helper()
	return metadata.NewIncomingContext(t.Context(), metadata.MD{"authorization": header})
}

func TestTokens(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	tokens := OpenTokens(dir)
	g := &Gate{Tokens: OpenTokens(dir), Anonymous: true, Own: "own"}
	if err := g.Check(t.Context(), clientMethod); err != nil {
		t.Errorf("without tokens nobody needs one: %v", err)
	}
	k, secret, err := tokens.Create("ci", RoleClient, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, TokensName))
	if err != nil || strings.Contains(string(raw), secret[len("firn_")+len(k.ID):]) {
		t.Errorf("the token itself is kept: %s, %v", raw, err)
	}
	if info, err := os.Stat(filepath.Join(dir, TokensName)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	_, old, err := tokens.Create("old", RoleClient, time.Now().Add(-time.Second))
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		ctx    context.Context
		method string
		ok     bool
	}{
		"good":            {call(t, "Bearer "+secret), clientMethod, true},
		"lower case":      {call(t, "bearer "+secret), clientMethod, true},
		"own":             {call(t, "Bearer own"), executorMethod, true},
		"none":            {t.Context(), clientMethod, false},
		"none, executor":  {t.Context(), executorMethod, false},
		"another role":    {call(t, "Bearer "+secret), executorMethod, false},
		"another scheme":  {call(t, "Basic "+secret), clientMethod, false},
		"two":             {call(t, "Bearer "+secret, "Bearer "+secret), clientMethod, false},
		"prefix":          {call(t, "Bearer "+secret[:len(secret)-1]), clientMethod, false},
		"empty":           {call(t, ""), clientMethod, false},
		"the hash":        {call(t, "Bearer "+k.Hash), clientMethod, false},
		"huge":            {call(t, "Bearer "+strings.Repeat("x", 1<<20)), clientMethod, false},
		"expired":         {call(t, "Bearer "+old), clientMethod, false},
		"unknown service": {call(t, "Bearer "+secret), "/grpc.reflection.v1.ServerReflection/X", false},
	} {
		err := g.Check(tt.ctx, tt.method)
		if (err == nil) != tt.ok || err != nil && commit.CodeOf(err) != commit.CodeUnauthenticated {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error tells the token: %v", name, err)
		}
	}
	if err := tokens.Revoke(k.ID); err != nil {
		t.Fatal(err)
	}
	if err := g.Check(call(t, "Bearer "+secret), clientMethod); err == nil {
		t.Error("a revoked token is good")
	}
	if err := tokens.Revoke(k.ID); commit.CodeOf(err) != commit.CodeTokenNotFound {
		t.Error(err)
	}
	if _, _, err := tokens.Create("x", "admin", time.Time{}); commit.CodeOf(err) != commit.CodeUsage {
		t.Error(err)
	}
}

// TestABrokenFileLetsNobodyIn: not even those who need no token without it.
func TestABrokenFileLetsNobodyIn(t *testing.T) {
	dir := t.TempDir()
	g := &Gate{Tokens: OpenTokens(dir), Anonymous: true}
	for _, text := range []string{"", "{", "[{}]", `[{"id":"a","role":"client","sha256":"00","created":"2026-01-01T00:00:00Z","name":""}]`, `[{"root":true}]`} {
		if err := os.WriteFile(filepath.Join(dir, TokensName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := g.Check(t.Context(), clientMethod); err == nil || !strings.Contains(err.Error(), TokensName) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestLoopback(t *testing.T) {
	for addr, want := range map[string]bool{
		"127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true, "localhost:1": true, "LocalHost:1": true,
		"0.0.0.0:1": false, ":1": false, "[::]:1": false, "10.0.0.1:1": false, "localhost.example:1": false, "127.0.0.1": false, "": false,
	} {
		if Loopback(addr) != want {
			t.Errorf("%q: want %v", addr, want)
		}
	}
}

func FuzzParseTokens(f *testing.F) {
	raw, err := json.Marshal([]Token{{ID: "a", Role: RoleClient, Hash: hashOf("x"), Created: time.Unix(0, 0)}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte(`[{"id":"a"}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := parseTokens(b)
		if err == nil && check(list, "guess", RoleClient, time.Now()) == nil {
			t.Error("a guess was let in")
		}
	})
}
