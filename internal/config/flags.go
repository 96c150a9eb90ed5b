package config

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
)

// EnvPrefix begins the names of all variables.
const EnvPrefix = "FIRN_"

// EnvName is the variable for a flag: --reject-limit is FIRN_REJECT_LIMIT.
func EnvName(flag string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// FileValues are the values of the file that flags also set, by the flag's name.
func (s Scheduler) FileValues() map[string]any {
	out := map[string]any{}
	for flag, value := range map[string]string{"listen": s.Listen, "dir": s.Dir, "dispatch": s.Dispatch, "http-listen": s.HTTP.Listen, "flight-sql-listen": s.FlightSQL.Listen} {
		if value != "" {
			out[flag] = value
		}
	}
	for flag, value := range map[string]string{"tls-cert": s.TLS.Cert, "tls-key": s.TLS.Key, "tls-ca": s.TLS.CA} {
		if value != "" {
			out[flag] = value
		}
	}
	for flag, value := range map[string]bool{
		"tls-require-client-cert": s.TLS.RequireClientCert, "allow-plaintext": s.AllowPlaintext, "allow-anonymous": s.AllowAnonymous,
		"check-all-files": s.Commit.CheckAllFiles,
	} {
		if value {
			out[flag] = value
		}
	}
	for flag, value := range map[string]time.Duration{
		"parked-retention": s.Parked.Retention, "journal-retention": s.Journal.Retention, "sweep-delay": s.Sweep.Delay,
		"commit-deadline": s.Commit.Deadline,
	} {
		if value != 0 {
			out[flag] = value.String()
		}
	}
	return out
}

// ApplyFlags sets every flag that the command line doesn't give from its variable
// or, when that isn't set either, from the file.
func ApplyFlags(fs *pflag.FlagSet, file map[string]any, getenv func(string) (string, bool)) error {
	env, given := layer{}, layer{}
	fs.VisitAll(func(f *pflag.Flag) {
		if v, ok := getenv(EnvName(f.Name)); ok {
			env[f.Name] = v
		}
		if f.Changed {
			given[f.Name] = f.Value.String()
		}
	})
	k := koanf.New("\x00") // flag names are flat: no delimiter
	for _, l := range []layer{file, env, given} {
		if err := k.Load(l, nil); err != nil {
			return err
		}
	}
	var errs []error
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Changed || !k.Exists(f.Name) {
			return
		}
		if err := fs.Set(f.Name, k.String(f.Name)); err != nil {
			origin := "the file"
			if _, ok := env[f.Name]; ok {
				origin = EnvName(f.Name)
			}
			errs = append(errs, bad(origin, fmt.Errorf("%s: %w", f.Name, err), "Correct the value or unset it."))
		}
	})
	return errors.Join(errs...)
}

// layer is one origin of values, as a koanf provider.
type layer map[string]any

// Read implements koanf.Provider.
func (l layer) Read() (map[string]any, error) { return l, nil }

// ReadBytes implements koanf.Provider.
func (l layer) ReadBytes() ([]byte, error) { return nil, errors.New("values have no bytes") }
