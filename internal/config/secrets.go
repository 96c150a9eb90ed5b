package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Redacted stands for a secret wherever configuration is shown.
const Redacted = "[redacted]"

// The endings of a property's key that say where its value is: in an environment
// variable, in a file, or in what a command prints.
const (
	envSuffix     = "_env"
	fileSuffix    = "_file"
	commandSuffix = "_command"
)

const (
	// maxSecret bounds a secret that is read from a file or a command, in bytes.
	maxSecret = 64 << 10
	// commandTimeout bounds how long a command may take.
	commandTimeout = 30 * time.Second
)

// Properties are a catalog's. Where YAML has {env: NAME}, {file: PATH} or
// {command: TEXT} for a value, the key gets the ending that means the same.
type Properties map[string]string

// UnmarshalYAML implements yaml.Unmarshaler.
func (p *Properties) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: want a mapping of keys to values", n.Line)
	}
	*p = Properties{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, v := n.Content[i].Value, n.Content[i+1]
		value := v.Value
		switch v.Kind {
		case yaml.ScalarNode:
		case yaml.MappingNode:
			if len(v.Content) != 2 || v.Content[1].Kind != yaml.ScalarNode || !slices.Contains([]string{"env", "file", "command"}, v.Content[0].Value) {
				return fmt.Errorf("line %d: %s: want a value, {env: NAME}, {file: PATH} or {command: TEXT}", v.Line, key)
			}
			key, value = key+"_"+v.Content[0].Value, v.Content[1].Value
		default:
			return fmt.Errorf("line %d: %s: want a value, {env: NAME}, {file: PATH} or {command: TEXT}", v.Line, key)
		}
		if _, twice := (*p)[key]; twice {
			return fmt.Errorf("line %d: %s stands twice", v.Line, key)
		}
		(*p)[key] = value
	}
	return nil
}

// SplitReference parts a property's key from the ending that says where its value
// is: "env", "file", "command", or "" for a value that stands there itself.
func SplitReference(key string) (name, kind string) {
	for _, s := range []string{envSuffix, fileSuffix, commandSuffix} {
		if n, ok := strings.CutSuffix(key, s); ok && n != "" {
			return n, s[1:]
		}
	}
	return key, ""
}

// SecretKey says whether a property's value is a secret. Headers count as such,
// since some hold tokens.
func SecretKey(key string) bool {
	key = strings.ToLower(key)
	if strings.HasSuffix(key, "access-key-id") || strings.HasSuffix(key, "-uri") {
		return false
	}
	for _, word := range []string{"secret", "token", "password", "credential", "passphrase", "private", "header.", "-key", "sas", "connection-string"} {
		if strings.Contains(key, word) {
			return true
		}
	}
	return false
}

// Mask gives a property's value as it may be shown. A reference is no secret.
func Mask(key, value string) string {
	name, kind := SplitReference(key)
	switch {
	case kind != "" || value == "":
		return value
	case strings.HasPrefix(value, "${") && strings.IndexByte(value, '}') == len(value)-1:
		return value
	case SecretKey(name):
		return Redacted
	case strings.Contains(value, "://"):
		return MaskURI(value)
	}
	return value
}

// MaskURI takes the password out of a URI, in its authority and in its query.
func MaskURI(uri string) string {
	u, err := url.Parse(strings.TrimPrefix(uri, "jdbc:"))
	if err != nil {
		return Redacted
	}
	if _, has := u.User.Password(); has {
		u.User = url.UserPassword(u.User.Username(), "redacted")
	} else if u.User == nil && len(u.Query()) == 0 {
		return uri
	}
	q := u.Query()
	for k := range q {
		if SecretKey(k) {
			q.Set(k, "redacted")
		}
	}
	if len(q) > 0 {
		u.RawQuery = q.Encode()
	}
	return u.String()
}

// SecretSources says where the values of references may come from.
type SecretSources struct {
	Getenv func(string) (string, bool)
	// Any lets everything be read; the rest is for those who mayn't.
	Any bool
	// Env are patterns of the names of variables, such as LAKE_*; Files the
	// directories of files.
	Env, Files []string
	// Commands lets commands run.
	Commands bool
}

// ResolveProperties puts values in the places of references.
func ResolveProperties(ctx context.Context, props map[string]string, from SecretSources) (map[string]string, error) {
	out := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(props)) {
		name, kind := SplitReference(key)
		value := props[key]
		if kind != "" {
			var err error
			if value, err = from.read(ctx, kind, value); err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
		}
		if _, twice := out[name]; twice {
			return nil, fmt.Errorf("%s: the property %s is given twice", key, name)
		}
		out[name] = value
	}
	return out, nil
}

func (s SecretSources) read(ctx context.Context, kind, at string) (string, error) {
	if !s.Any && !s.allowed(kind, at) {
		return "", fmt.Errorf("%s %s isn't among create_catalog.secrets of the scheduler's configuration", map[string]string{
			"env": "the variable", "file": "the file", "command": "running a command,",
		}[kind], at)
	}
	switch kind {
	case "env":
		v, ok := s.Getenv(at)
		if !ok {
			return "", fmt.Errorf("the environment variable %s isn't set", at)
		}
		return v, nil
	case "file":
		f, err := os.Open(at)
		if err != nil {
			return "", err
		}
		defer func() { _ = f.Close() }()
		buf := make([]byte, maxSecret+1)
		n := 0
		for n < len(buf) {
			m, err := f.Read(buf[n:])
			n += m
			if err != nil {
				break
			}
		}
		if n > maxSecret {
			return "", fmt.Errorf("%s: longer than %d bytes", at, maxSecret)
		}
		return strings.TrimRight(string(buf[:n]), "\r\n"), nil
	default:
		return run(ctx, at)
	}
}

func (s SecretSources) allowed(kind, at string) bool {
	switch kind {
	case "env":
		return slices.ContainsFunc(s.Env, func(pattern string) bool {
			ok, err := path.Match(pattern, at)
			return err == nil && ok
		})
	case "file":
		// Links are followed first, so that none leads out.
		real, err := filepath.EvalSymlinks(at)
		return err == nil && filepath.IsAbs(real) && slices.ContainsFunc(s.Files, func(dir string) bool {
			dir, err := filepath.EvalSymlinks(dir)
			return err == nil && strings.HasPrefix(real, strings.TrimRight(dir, "/")+"/")
		})
	}
	return s.Commands
}

// run gives what a command prints. Neither that nor what it complains about stands
// in the error.
func run(ctx context.Context, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout = &limited{&out, maxSecret}
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("the command %q: %w", command, err)
	}
	if out.Len() == 0 {
		return "", fmt.Errorf("the command %q printed nothing", command)
	}
	return strings.TrimRight(out.String(), "\r\n"), nil
}

// limited is a buffer that takes so many bytes.
type limited struct {
	to   *bytes.Buffer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	if len(p) > l.left {
		return 0, errors.New("it printed too much")
	}
	l.left -= len(p)
	return l.to.Write(p)
}
