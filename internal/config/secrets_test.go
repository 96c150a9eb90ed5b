package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

const withSecrets = `
listen: 127.0.0.1:1
catalogs:
  lake:
    type: rest
    uri: https://me:CANARY@example.org/catalog
    warehouse: ${HOUSE}
    properties:
      credential: {env: LAKE_CREDENTIAL}
      s3.secret-access-key: {file: %s}
      s3.session-token: {command: "echo from-command"}
      token: CANARY
      s3.access-key-id: AKID
      header.X-Team_env: TEAM
      scope: all
sources: {local: {allow: [/data]}}
`

func TestSecretsFromEverywhere(t *testing.T) {
	secret := write(t, "secret", "from-file\n")
	path := write(t, "c", fmt.Sprintf(withSecrets, secret))
	s, err := LoadScheduler(path, env(map[string]string{"LAKE_CREDENTIAL": "from-env", "TEAM": "t", "HOUSE": "w"}))
	if err != nil {
		t.Fatal(err)
	}
	want := Properties{
		"credential": "from-env", "s3.secret-access-key": "from-file", "s3.session-token": "from-command", "token": "CANARY",
		"s3.access-key-id": "AKID", "header.X-Team": "t", "scope": "all",
	}
	if diff := cmp.Diff(want, s.Catalogs["lake"].Properties); diff != "" {
		t.Error(diff)
	}
	_, err = LoadScheduler(path, env(map[string]string{"HOUSE": "w", "TEAM": "t"}))
	if err == nil || !strings.Contains(err.Error(), "catalogs.lake.properties.credential_env: the environment variable LAKE_CREDENTIAL isn't set") {
		t.Errorf("without the variable: %v", err)
	}
	for text, want := range map[string]string{
		"{a: {env: X, file: Y}}":                 "want a value, {env: NAME}",
		"{a: {vault: X}}":                        "want a value, {env: NAME}",
		"{a: [X]}":                               "want a value, {env: NAME}",
		"[a]":                                    "want a mapping",
		"{a: x, a_file: " + secret + "}":         "the property a is given twice",
		"{a: {env: X}, a_env: Y}":                "a_env stands twice",
		"{a_command: 'echo CANARY >&2; exit 3'}": `a_command: the command "echo CANARY >&2; exit 3": exit status 3`,
		"{a_command: 'true'}":                    "printed nothing",
		"{a_command: 'yes'}":                     "the command",
	} {
		_, err := LoadScheduler(write(t, "c", "catalogs: {lake: {type: rest, uri: x, properties: "+text+"}}"), env(map[string]string{"X": "", "Y": ""}))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// What a statement may refer to is what the configuration says, and nothing more.
func TestSecretSources(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"in/s": "inside", "out/s": "outside"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(dir+"/out/s", dir+"/in/link"); err != nil {
		t.Fatal(err)
	}
	big := filepath.Join(dir, "in", "big")
	if err := os.WriteFile(big, make([]byte, maxSecret+1), 0o600); err != nil {
		t.Fatal(err)
	}
	from := SecretSources{Getenv: env(map[string]string{"LAKE_A": "a", "HOME": "h"}), Env: []string{"LAKE_*"}, Files: []string{dir + "/in"}}
	for key, c := range map[string]struct{ at, want, err string }{
		"a_env":     {"LAKE_A", "a", ""},
		"b_env":     {"HOME", "", "isn't among create_catalog.secrets"},
		"c_env":     {"LAKE_B", "", "isn't set"},
		"d_file":    {dir + "/in/s", "inside", ""},
		"e_file":    {dir + "/out/s", "", "isn't among"},
		"f_file":    {dir + "/in/link", "", "isn't among"},
		"g_file":    {dir + "/in/../out/s", "", "isn't among"},
		"h_file":    {dir + "/in/none", "", "isn't among"},
		"i_file":    {big, "", "longer than"},
		"j_command": {"echo x", "", "running a command, echo x isn't among"},
		"k":         {"literal", "literal", ""},
	} {
		got, err := ResolveProperties(t.Context(), map[string]string{key: c.at}, from)
		name, _ := SplitReference(key)
		if c.err == "" && (err != nil || got[name] != c.want) {
			t.Errorf("%s: %v, %v", key, got, err)
		}
		if c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %v, want %q", key, err, c.err)
		}
	}
	from.Commands = true
	if got, err := ResolveProperties(t.Context(), map[string]string{"j_command": "echo x"}, from); err != nil || got["j"] != "x" {
		t.Errorf("a command: %v, %v", got, err)
	}
}

func TestMask(t *testing.T) {
	for _, c := range [][3]string{
		{"token", "x", Redacted},
		{"credential", "a:b", Redacted},
		{"s3.secret-access-key", "x", Redacted},
		{"s3.session-token", "x", Redacted},
		{"s3.access-key-id", "x", "x"},
		{"header.Authorization", "x", Redacted},
		{"password", "${PW}", "${PW}"},
		{"password", "${PW}x", Redacted},
		{"token_env", "NAME", "NAME"},
		{"oauth2-server-uri", "https://me:pw@x/y", "https://me:redacted@x/y"},
		{"scope", "catalog", "catalog"},
		{"uri", "postgresql://me@h/db?password=pw&sslmode=off", "postgresql://me@h/db?password=redacted&sslmode=off"},
		{"uri", "jdbc:postgresql://h/db?password=pw", "postgresql://h/db?password=redacted"},
		{"uri", "sqlite:///a/b", "sqlite:///a/b"},
		{"uri", "http://%zz:pw@x", Redacted},
	} {
		if got := Mask(c[0], c[1]); got != c[2] {
			t.Errorf("%s = %s: %s, want %s", c[0], c[1], got, c[2])
		}
	}
}

func TestView(t *testing.T) {
	path := write(t, "c", fmt.Sprintf(withSecrets, "/no/such/file"))
	fs := pflag.NewFlagSet("x", pflag.ContinueOnError)
	fs.String("listen", "default", "")
	fs.String("dir", "default", "")
	fs.String("dispatch", "push", "")
	fs.String("log-level", "info", "")
	fs.String("other", "", "")
	if err := fs.Parse([]string{"--dir=d"}); err != nil {
		t.Fatal(err)
	}
	vars := env(map[string]string{"FIRN_LOG_LEVEL": "warn"})
	s, err := ReadScheduler(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := ApplyFlags(fs, s.FileValues(), vars); err != nil {
		t.Fatal(err)
	}
	which := pflag.NewFlagSet("y", pflag.ContinueOnError)
	for _, f := range []string{"listen", "dir", "dispatch", "log-level"} {
		which.String(f, "", "")
	}
	got, err := View(fs, which, map[string]bool{"dir": true}, path, vars)
	if err != nil {
		t.Fatal(err)
	}
	at := func(line int) string { return fmt.Sprintf("file %s, line %d", path, line) }
	want := []Setting{
		{"dir", "d", "flag --dir"},
		{"dispatch", "push", "default"},
		{"listen", "127.0.0.1:1", at(2)},
		{"log-level", "warn", "variable FIRN_LOG_LEVEL"},
		{"catalogs.lake.type", "rest", at(5)},
		{"catalogs.lake.uri", "https://me:redacted@example.org/catalog", at(6)},
		{"catalogs.lake.warehouse", "${HOUSE}", at(7)},
		{"catalogs.lake.properties.credential", Redacted, at(9) + ": variable LAKE_CREDENTIAL"},
		{"catalogs.lake.properties.s3.secret-access-key", Redacted, at(10) + ": file /no/such/file"},
		{"catalogs.lake.properties.s3.session-token", Redacted, at(11) + `: command echo from-command`},
		{"catalogs.lake.properties.token", Redacted, at(12)},
		{"catalogs.lake.properties.s3.access-key-id", "AKID", at(13)},
		{"catalogs.lake.properties.header.X-Team", Redacted, at(14) + ": variable TEAM"},
		{"catalogs.lake.properties.scope", "all", at(15)},
		{"sources.local.allow[0]", "/data", at(16)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
