package config

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// Setting is one value of the configuration as it may be shown.
type Setting struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
}

// View lists the settings of a scheduler: the flags of which, wherever their
// values in fs come from, and what the file says beyond them. given are those on
// the command line; path may be empty. Secrets are masked and none is read.
func View(fs, which *pflag.FlagSet, given map[string]bool, path string, getenv func(string) (string, bool)) ([]Setting, error) {
	var out []Setting
	var s Scheduler
	var lines map[string]int
	if path != "" {
		var err error
		if s, err = ReadScheduler(path); err != nil {
			return nil, err
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, bad(path, err, "Check the path given to --config.")
		}
		lines = map[string]int{}
		out = leaves(raw, path, lines)
	}
	file := s.FileValues()
	var flags []Setting
	which.VisitAll(func(w *pflag.Flag) {
		f, origin := fs.Lookup(w.Name), "default"
		switch _, inEnv := getenv(EnvName(f.Name)); {
		case given[f.Name]:
			origin = "flag --" + f.Name
		case inEnv:
			origin = "variable " + EnvName(f.Name)
		case file[f.Name] != nil:
			origin = fmt.Sprintf("file %s, line %d", path, lines[f.Name])
		}
		flags = append(flags, Setting{f.Name, f.Value.String(), origin})
	})
	return append(flags, out...), nil
}

// leaves lists the values of a file that are no flags, with their lines.
func leaves(raw []byte, path string, lines map[string]int) []Setting {
	var doc yaml.Node
	if yaml.Unmarshal(raw, &doc) != nil || len(doc.Content) == 0 {
		return nil
	}
	var out []Setting
	var walk func(n *yaml.Node, key string)
	walk = func(n *yaml.Node, key string) {
		switch n.Kind {
		case yaml.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				walk(n.Content[i+1], strings.TrimPrefix(key+"."+n.Content[i].Value, "."))
			}
		case yaml.SequenceNode:
			for i, item := range n.Content {
				walk(item, key+"["+strconv.Itoa(i)+"]")
			}
		case yaml.ScalarNode:
			if lines[key] = n.Line; strings.Contains(key, ".") {
				out = append(out, leaf(key, n, path))
			}
		}
	}
	walk(doc.Content[0], "")
	return out
}

// leaf shows one value. What stands for a secret is shown with where it leads.
func leaf(key string, n *yaml.Node, path string) Setting {
	s := Setting{Key: key, Value: n.Value, Origin: fmt.Sprintf("file %s, line %d", path, n.Line)}
	_, property, ok := strings.Cut(key, ".properties.")
	if !ok || (!strings.HasPrefix(key, "catalogs.") && !strings.HasPrefix(key, "sources.stores[") && !strings.HasPrefix(key, "sources.flight_sql.") && !strings.HasPrefix(key, "delta.paths[")) {
		s.Value = Mask("", n.Value)
		return s
	}
	for _, kind := range []string{"env", "file", "command"} {
		if name, ok := strings.CutSuffix(property, "."+kind); ok {
			property = name + "_" + kind
		}
	}
	_, kind := SplitReference(property)
	s.Key = strings.TrimSuffix(strings.TrimSuffix(key, "."+kind), "_"+kind)
	switch kind {
	case "":
		s.Value = Mask(property, n.Value)
		if property == "allow_unscoped" && n.Value == "true" {
			s.Origin += "; warning: executors may get the scheduler's own keys to the store, which aren't scoped to a job"
		}
	case "env":
		s.Value, s.Origin = Redacted, s.Origin+": variable "+n.Value
	default:
		s.Value, s.Origin = Redacted, s.Origin+": "+kind+" "+n.Value
	}
	return s
}
