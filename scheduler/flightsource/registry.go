package flightsource

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/flightsql"
	"github.com/firn-project/firn/internal/flightsql/location"
	"github.com/firn-project/firn/sql"
)

// Config is a source of the configuration. It holds secrets.
type Config struct {
	Name string
	URI  string
	// Token is shown as it is; User and Password are handed to the engine for a
	// token.
	Token, User, Password string
	// CA, Headers, Locations and ReadTimeout are flightsql.Access's.
	CA          []byte
	Headers     map[string]string
	Locations   []string
	ReadTimeout time.Duration
	// AllowPlaintext is flightsql.Access's.
	AllowPlaintext bool
	// Timeout is how long a query may run until all of its endpoints are known.
	Timeout time.Duration
}

// String keeps the secrets out of logs.
func (c Config) String() string { return "source " + c.Name }

// GoString is String, for %#v.
func (c Config) GoString() string { return c.String() }

// DefaultTimeout is how long a query may run until all of its endpoints are known.
const DefaultTimeout = time.Hour

// maxSources bounds what statements make.
const maxSources = 1000

// Origins of sources.
const (
	originConfig    = "configuration"
	originStatement = "statement"
)

// Registry has the sources of a scheduler. It is safe for concurrent use.
type Registry struct {
	configs map[string]Config
	state   string
	// any: statements may name every address, and say where its secrets are.
	any  bool
	read func(ctx context.Context, props map[string]string) (map[string]string, error)

	mu sync.Mutex
	// made is replaced as a whole.
	made map[string]definition
	// shown has at most maxShown.
	shown    map[string]*shown
	maxShown int
}

// Options says what a Registry has.
type Options struct {
	Configs []Config
	// State is the file of what CREATE SOURCE made.
	State string
	// Any lets statements name every address, with secrets that Read finds by
	// references such as token_file. It is for modes in which whoever sends statements
	// is who runs the process.
	Any  bool
	Read func(ctx context.Context, props map[string]string) (map[string]string, error)
}

// Open reads what earlier statements made.
func Open(o Options) (*Registry, error) {
	r := &Registry{configs: map[string]Config{}, state: o.State, any: o.Any, read: o.Read, shown: map[string]*shown{}, maxShown: maxShown}
	for _, c := range o.Configs {
		r.configs[c.Name] = c
	}
	var err error
	r.made, err = load(o.State)
	return r, err
}

// source is a definition that was found.
type source struct {
	Config
	// secret names the entry that it has its secrets of; origin where it stands.
	secret, origin string
}

func (s source) access() flightsql.Access {
	return flightsql.Access{
		Name: s.Name, URI: s.URI, Headers: s.Headers, CA: s.CA, Locations: s.Locations, ReadTimeout: s.ReadTimeout, AllowPlaintext: s.AllowPlaintext,
	}
}

// find gives the source that a statement names, by its name or by its address.
func (r *Registry) find(ctx context.Context, name string) (source, error) {
	if strings.Contains(name, "://") {
		return r.byAddress(name)
	}
	if c, ok := r.configs[name]; ok {
		return source{c, name, originConfig}, nil
	}
	if d, ok := r.statements()[name]; ok {
		return r.resolve(ctx, name, d)
	}
	hint := "There are no sources; CREATE SOURCE, or sources.flight_sql in the scheduler's configuration, makes them."
	if names := r.names(r.statements()); len(names) > 0 {
		hint = "There are " + strings.Join(names, ", ") + "."
	}
	if strings.Contains(name, ":") {
		hint = "An address begins with its scheme: grpc+tls://" + name + ", or grpc://" + name + " without TLS."
	}
	return source{}, &commit.Error{Code: commit.CodeFlightSourceUnknown, Op: "find source", Object: name, Cause: errors.New("there is no source of this name"), Hint: hint}
}

// statements are what CREATE SOURCE made, as it is now; the map doesn't change any more.
func (r *Registry) statements() map[string]definition {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.made
}

// names are those of all sources. One in the configuration may hide one that a
// statement made before it was there.
func (r *Registry) names(made map[string]definition) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Keys(r.configs)), slices.Collect(maps.Keys(made))))))
}

// byAddress finds the entry of the configuration that an address belongs to.
func (r *Registry) byAddress(uri string) (source, error) {
	l, err := location.Parse(uri)
	if err != nil {
		e := notAllowed(uri, err)
		e.Hint = "Write grpc+tls://HOST:PORT, or grpc://HOST:PORT without TLS."
		return source{}, e
	}
	var found []source
	for _, name := range slices.Sorted(maps.Keys(r.configs)) {
		c := r.configs[name]
		if home, err := location.Parse(c.URI); err == nil && home == l {
			found = append(found, source{c, name, originConfig})
		}
	}
	if len(found) == 0 {
		for _, name := range slices.Sorted(maps.Keys(r.configs)) {
			c := r.configs[name]
			if (source{Config: c}).access().Permits(l) == nil {
				c.URI, c.Name = l.String(), uri
				found = append(found, source{c, name, originConfig})
			}
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return source{}, &commit.Error{
			Code: commit.CodeFlightNotAllowed, Op: "find source", Object: uri,
			Cause: fmt.Errorf("%s and %s both have this address, and may have other secrets for it", found[0].secret, found[1].secret),
			Hint:  "Name the source: flight_sql('" + found[0].secret + "', …).",
		}
	case r.any:
		return source{Config: Config{Name: uri, URI: l.String()}, origin: originStatement}, nil
	}
	return source{}, notAllowed(uri, errors.New("the scheduler's configuration has no source with this address"))
}

func notAllowed(uri string, cause error) *commit.Error {
	return &commit.Error{
		Code: commit.CodeFlightNotAllowed, Op: "find source", Object: uri, Cause: cause, Tried: "nothing was sent there",
		Hint: "Have the address in uri, or in locations, of an entry of sources.flight_sql in the scheduler's configuration.",
	}
}

// definition is what CREATE SOURCE made. It holds no secret, only where one is.
type definition struct {
	URI    string `json:"uri,omitempty"`
	Secret string `json:"secret,omitempty"`
	// References are such as token_file, in modes that take them.
	References map[string]string `json:"references,omitempty"`
}

// resolve makes a source of a definition.
func (r *Registry) resolve(ctx context.Context, name string, d definition) (source, error) {
	bad := func(format string, args ...any) (source, error) {
		return source{}, badSource("find source", name, fmt.Errorf(format, args...), "")
	}
	var s source
	switch c, ok := r.configs[d.Secret]; {
	case d.Secret != "" && !ok:
		return bad("sources.flight_sql of the scheduler's configuration has no entry %q (any more)", d.Secret)
	case d.Secret != "":
		s = source{c, d.Secret, originStatement}
		if d.URI != "" {
			l, err := location.Parse(d.URI)
			if err == nil {
				err = s.access().Permits(l)
			}
			if err != nil {
				return source{}, notAllowed(d.URI, err)
			}
			s.URI = l.String()
		}
	default:
		var err error
		if s, err = r.byAddress(d.URI); err != nil {
			return s, err
		}
		s.origin = originStatement
	}
	s.Name = name
	if len(d.References) > 0 {
		props, err := r.read(ctx, d.References)
		if err != nil {
			return bad("%w", err)
		}
		s.Token, s.User, s.Password, s.CA = props["token"], props["username"], props["password"], []byte(props["ca"])
	}
	return s, nil
}

func badSource(op, name string, cause error, hint string) error {
	return &commit.Error{Code: commit.CodeFlightSource, Op: op, Object: name, Cause: cause, Hint: hint}
}

var goodName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,127}$`)

// CreateSource implements sql.FlightSources.
func (r *Registry) CreateSource(ctx context.Context, def sql.SourceDef) error {
	d, err := r.define(def)
	if err != nil {
		return err
	}
	if _, err := r.resolve(ctx, def.Name, d); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, made := r.made[def.Name]
	if _, configured := r.configs[def.Name]; configured || made {
		if def.IfNotExists {
			return nil
		}
		return badSource("create source", def.Name, errors.New("there is one of this name"), "DROP SOURCE first, or take another name.")
	}
	if len(r.made) >= maxSources {
		return badSource("create source", def.Name, fmt.Errorf("there are %d sources made by statements already", maxSources), "DROP SOURCE those that nobody needs.")
	}
	next := maps.Clone(r.made)
	next[def.Name] = d
	if err := save(r.state, next); err != nil {
		return err
	}
	r.made = next
	return nil
}

// define reads the properties of a CREATE SOURCE. A secret in one is refused, and
// isn't repeated.
func (r *Registry) define(def sql.SourceDef) (definition, error) {
	bad := func(hint, format string, args ...any) (definition, error) {
		return definition{}, badSource("create source", def.Name, fmt.Errorf(format, args...), hint)
	}
	if !goodName.MatchString(def.Name) {
		return bad("", "the name isn't made of letters, digits, _ and -")
	}
	if t := def.Properties["type"]; t != "flight_sql" {
		return bad("Write type = 'flight_sql'.", "the type is %q", t)
	}
	d := definition{URI: def.Properties["uri"], Secret: def.Properties["secret"]}
	for _, key := range slices.Sorted(maps.Keys(def.Properties)) {
		switch key {
		case "type", "uri", "secret":
		case "token", "password", "authorization":
			return bad("Put it into an entry of sources.flight_sql in the scheduler's configuration, and name that: secret = 'entry'. Change the secret: statements are logged and kept.",
				"the property %s is a secret, and secrets don't stand in statements", key)
		case "username", "token_file", "token_env", "password_file", "password_env", "ca_file":
			if !r.any {
				return bad("Put it into an entry of sources.flight_sql in the scheduler's configuration, and name that: secret = 'entry'.",
					"the property %s isn't taken from statements here", key)
			}
			if d.References == nil {
				d.References = map[string]string{}
			}
			d.References[key] = def.Properties[key]
		default:
			return bad("There are type, uri and secret.", "there is no property %s", key)
		}
	}
	switch {
	case d.URI == "" && d.Secret == "":
		return bad("Write uri = 'grpc+tls://HOST:PORT', or secret = 'entry' for the address and the secrets of an entry of the configuration.", "neither uri nor secret is given")
	case d.Secret != "" && d.References != nil:
		return bad("", "secret and %s exclude each other", slices.Sorted(maps.Keys(d.References))[0])
	}
	if d.URI != "" {
		l, err := location.Parse(d.URI)
		if err != nil {
			return bad("", "uri: %w", err)
		}
		d.URI = l.String()
	}
	return d, nil
}

// DropSource implements sql.FlightSources.
func (r *Registry) DropSource(_ context.Context, name string, ifExists bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.made[name]; !ok {
		if _, ok := r.configs[name]; ok {
			return badSource("drop source", name, errors.New("it stands in the scheduler's configuration"), "Take it out of sources.flight_sql there.")
		}
		if ifExists {
			return nil
		}
		return &commit.Error{Code: commit.CodeFlightSourceUnknown, Op: "drop source", Object: name, Cause: errors.New("there is no source of this name")}
	}
	next := maps.Clone(r.made)
	delete(next, name)
	if err := save(r.state, next); err != nil {
		return err
	}
	r.made = next
	delete(r.shown, name)
	return nil
}

// SourceInfos implements sql.FlightSources.
func (r *Registry) SourceInfos(context.Context) ([]sql.SourceInfo, error) {
	var out []sql.SourceInfo
	made := r.statements()
	for _, name := range r.names(made) {
		i := sql.SourceInfo{Name: name, Type: "flight_sql", Origin: originConfig}
		if c, ok := r.configs[name]; ok {
			i.URI = c.URI
			if c.Token != "" || c.Password != "" {
				i.Secret = name
			}
		} else {
			d := made[name]
			i.URI, i.Secret, i.Origin = d.URI, d.Secret, originStatement
			if i.URI == "" {
				i.URI = r.configs[d.Secret].URI
			}
		}
		out = append(out, i)
	}
	return out, nil
}
