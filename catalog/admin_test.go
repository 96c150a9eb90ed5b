package catalog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/config"
	"github.com/firn-project/firn/sql"
)

// admin is a Set with a state in dir, in which statements may make catalogs and
// refer to TOKEN.
func admin(t *testing.T, dir string, configs ...Config) *Set {
	t.Helper()
	s, err := OpenWith(context.Background(), Options{
		Configs: configs, State: filepath.Join(dir, "catalogs.json"), CreateTypes: []string{"sql", "rest"},
		Secrets: config.SecretSources{Env: []string{"TOKEN"}, Getenv: func(string) (string, bool) { return "CANARY", true }},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func shut(t *testing.T, s *Set) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func define(name string, props ...string) sql.CatalogDef {
	d := sql.CatalogDef{Name: name, Properties: map[string]string{}}
	for i := 0; i < len(props); i += 2 {
		d.Properties[props[i]] = props[i+1]
	}
	return d
}

func TestCreateCatalog(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	rest := newRESTServer(t)
	rest.tokens = map[string]bool{"CANARY": true}
	s := admin(t, dir, Config{Name: "fixed", Type: "sql", URI: dir + "/fixed.db", Warehouse: dir + "/w"})
	if err := s.CreateCatalog(ctx, define("lake", "type", "rest", "uri", rest.URL, "warehouse", "wh", "token_env", "TOKEN")); err != nil {
		t.Fatal(err)
	}
	if err := s.CreateNamespace(ctx, "lake", []string{"air"}, nil, false); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "again", s.CreateCatalog(ctx, define("lake", "type", "rest")), commit.CodeCatalogExists)
	again := define("lake", "type", "rest")
	again.IfNotExists = true
	if err := s.CreateCatalog(ctx, again); err != nil {
		t.Errorf("IF NOT EXISTS: %v", err)
	}
	for what, c := range map[string]struct {
		def  sql.CatalogDef
		code commit.Code
		says string
	}{
		"no type":    {define("x", "uri", "y"), commit.CodeCatalogConfig, "want sql or rest"},
		"hadoop":     {define("x", "type", "hadoop", "uri", "s3://x"), commit.CodeCatalogConfig, "object stores copy instead"},
		"name":       {define("a.b", "type", "sql", "uri", dir+"/x.db"), commit.CodeCatalogConfig, "dot"},
		"uri":        {define("x", "type", "rest", "uri", "ftp://x"), commit.CodeCatalogConfig, "want http"},
		"in the uri": {define("x", "type", "rest", "uri", "ftp://me:CANARY@x"), commit.CodeCatalogConfig, "want http"},
		"database":   {define("x", "type", "sql", "uri", "mysql://me:CANARY@x"), commit.CodeCatalogConfig, "want sqlite"},
		"oauth":      {define("x", "type", "rest", "uri", rest.URL, "credential", "me:CANARY", "oauth2-server-uri", "ftp://me:CANARY@x"), commit.CodeCatalogConfig, "want http"},
		"secret":     {define("x", "type", "rest", "uri", rest.URL, "token_env", "HOME"), commit.CodeCatalogConfig, "isn't among"},
		"wrong":      {define("x", "type", "rest", "uri", rest.URL, "token", "CANARY2"), commit.CodeCatalogPermission, "401"},
		"configured": {define("fixed", "type", "sql", "uri", dir+"/x.db"), commit.CodeCatalogExists, ""},
	} {
		err := s.CreateCatalog(ctx, c.def)
		wantCode(t, what, err, c.code)
		if text := fmt.Sprint(err); !strings.Contains(text, c.says) || strings.Contains(text, "CANARY") {
			t.Errorf("%s: %s", what, text)
		}
	}
	wantCode(t, "drop a configured one", s.DropCatalog(ctx, "fixed", false), commit.CodeCatalogConfig)
	wantCode(t, "drop what isn't there", s.DropCatalog(ctx, "none", false), commit.CodeCatalogUnknown)
	if err := s.DropCatalog(ctx, "none", true); err != nil {
		t.Errorf("IF EXISTS: %v", err)
	}
	infos, err := s.CatalogInfos(ctx)
	if err != nil || len(infos) != 2 || infos[0].Origin != "configuration" || infos[1].Origin != "statement" || infos[1].URI != rest.URL {
		t.Errorf("infos %+v, %v", infos, err)
	}
	shut(t, s)
	raw, err := os.ReadFile(dir + "/catalogs.json")
	if err != nil || strings.Contains(string(raw), "CANARY") || !strings.Contains(string(raw), `"token_env": "TOKEN"`) {
		t.Errorf("kept: %s, %v", raw, err)
	}

	// A scheduler that starts while the catalog is away starts, and finds it
	// when it's back.
	valid := rest.tokens
	rest.mu.Lock()
	rest.tokens = map[string]bool{}
	rest.mu.Unlock()
	s = admin(t, dir)
	if names, err := s.Catalogs(ctx); err != nil || fmt.Sprint(names) != "[lake]" {
		t.Errorf("catalogs %v, %v", names, err)
	}
	if infos, err := s.CatalogInfos(ctx); err != nil || len(infos) != 1 || !strings.Contains(infos[0].Origin, "can't be opened") {
		t.Errorf("infos %+v, %v", infos, err)
	}
	_, err = s.Namespaces(ctx, "lake", nil)
	wantCode(t, "while it is away", err, commit.CodeCatalogPermission)
	rest.mu.Lock()
	rest.tokens = valid
	rest.mu.Unlock()
	if ns, err := s.Namespaces(ctx, "lake", nil); err != nil || len(ns) != 1 {
		t.Errorf("when it is back: %v, %v", ns, err)
	}
	if err := s.DropCatalog(ctx, "lake", false); err != nil {
		t.Fatal(err)
	}
	_, err = s.Namespaces(ctx, "lake", nil)
	wantCode(t, "dropped", err, commit.CodeCatalogUnknown)
	shut(t, s)
	s = admin(t, dir)
	if names, _ := s.Catalogs(ctx); len(names) != 0 {
		t.Errorf("after the drop: %v", names)
	}
	shut(t, s)
}

func TestCatalogsAreNotMadeUnlessAllowed(t *testing.T) {
	s, err := OpenWith(t.Context(), Options{CreateTypes: []string{"rest"}})
	if err != nil {
		t.Fatal(err)
	}
	defer shut(t, s)
	file := t.TempDir() + "/x.db"
	wantCode(t, "another type", s.CreateCatalog(t.Context(), define("x", "type", "sql", "uri", file)), commit.CodeCatalogNotAllowed)
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it was made all the same: %v", err)
	}
}

func TestStateThatCannotBeRead(t *testing.T) {
	for text, want := range map[string]string{"{": "unexpected end", `{"version": 9}`: "version 9"} {
		path := filepath.Join(t.TempDir(), "catalogs.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := OpenWith(t.Context(), Options{State: path})
		wantCode(t, text, err, commit.CodeCatalogConfig)
		if !strings.Contains(fmt.Sprint(err), want) || !strings.Contains(fmt.Sprint(err), path) {
			t.Errorf("%s: %v", text, err)
		}
	}
	// A state that can't be written makes no catalog.
	dir := t.TempDir()
	s := admin(t, filepath.Join(dir, "missing"))
	defer shut(t, s)
	if err := s.CreateCatalog(t.Context(), define("x", "type", "sql", "uri", dir+"/x.db")); err == nil {
		t.Error("made, and not kept")
	}
	if names, _ := s.Catalogs(t.Context()); len(names) != 0 {
		t.Errorf("catalogs %v", names)
	}
}
