package sql

import (
	"context"
	"errors"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/plan"
)

// FlightSources is what statements need of the Flight SQL engines that are sources.
// Errors are *commit.Error, or wrap one.
type FlightSources interface {
	// CreateSource keeps a definition under a name.
	CreateSource(ctx context.Context, def SourceDef) error
	// DropSource forgets one that CreateSource made.
	DropSource(ctx context.Context, name string, ifExists bool) error
	// SourceInfos describes all, without secrets.
	SourceInfos(ctx context.Context) ([]SourceInfo, error)
}

// SourceDef is a CREATE SOURCE. Its properties hold no secrets, unless somebody
// wrote one where none is taken.
type SourceDef struct {
	Name        string
	IfNotExists bool
	Properties  map[string]string
}

// String keeps what isn't to be there out of logs.
func (d SourceDef) String() string { return "source " + d.Name }

// GoString is String, for %#v.
func (d SourceDef) GoString() string { return d.String() }

// SourceInfo is a source as SHOW SOURCES shows it.
type SourceInfo struct {
	Name, Type, URI string
	// Secret names the entry of the configuration whose secrets it shows; empty for
	// none.
	Secret string
	// Origin says where its definition stands, "configuration" or "statement".
	Origin string
}

// CreateSource is CREATE SOURCE.
type CreateSource struct {
	Name        Ident
	IfNotExists bool
	Properties  []Property
}

// DropSource is DROP SOURCE.
type DropSource struct {
	Name     Ident
	IfExists bool
}

func (*CreateSource) kind() string { return "CREATE SOURCE" }
func (*DropSource) kind() string   { return "DROP SOURCE" }

// createSource reads what follows CREATE SOURCE.
func (p *parser) createSource() (Body, error) {
	var c CreateSource
	var err error
	if c.IfNotExists, err = p.ifNotExists(); err != nil {
		return nil, err
	}
	if c.Name, err = p.ident("the name of a source"); err != nil {
		return nil, err
	}
	if !p.accept("WITH") {
		return nil, p.unexpected("WITH (type = 'flight_sql', uri = '…', secret = '…')")
	}
	if c.Properties, err = p.properties(p.looseKey); err != nil {
		return nil, err
	}
	return &c, p.end()
}

// dropSource reads what follows DROP SOURCE.
func (p *parser) dropSource() (Body, error) {
	var d DropSource
	d.IfExists = p.accept("IF")
	if d.IfExists && !p.accept("EXISTS") {
		return nil, p.unexpected("EXISTS")
	}
	var err error
	if d.Name, err = p.ident("the name of a source"); err != nil {
		return nil, err
	}
	return &d, p.end()
}

// flightSources are the analyzer's, if it has any.
func (a *Analyzer) flightSources(op, object string) (FlightSources, error) {
	if a.Flight != nil {
		return a.Flight, nil
	}
	return nil, &commit.Error{
		Code: commit.CodeSQLUnsupportedStatement, Op: op, Object: object, Cause: errors.New("this scheduler has no Flight SQL sources"),
		Hint: "Configure sources.flight_sql in the scheduler's file.",
	}
}

func (a *Analyzer) createSource(ctx context.Context, body *CreateSource) error {
	s, err := a.flightSources("create source", body.Name.Name)
	if err != nil {
		return err
	}
	def := SourceDef{Name: body.Name.Name, IfNotExists: body.IfNotExists, Properties: map[string]string{}}
	for _, p := range body.Properties {
		def.Properties[asciiLower(p.Key)] = p.Value
	}
	return s.CreateSource(ctx, def)
}

func (a *Analyzer) dropSource(ctx context.Context, body *DropSource) error {
	s, err := a.flightSources("drop source", body.Name.Name)
	if err != nil {
		return err
	}
	return s.DropSource(ctx, body.Name.Name, body.IfExists)
}

func (a *Analyzer) showSources(ctx context.Context, r *Result) error {
	r.Columns = []string{"source", "type", "uri", "secret", "origin"}
	if a.Flight == nil {
		return nil
	}
	infos, err := a.Flight.SourceInfos(ctx)
	for _, i := range infos {
		r.Rows = append(r.Rows, []any{i.Name, i.Type, i.URI, i.Secret, i.Origin})
	}
	return err
}

// flightFunction is the table function that reads what an engine's query gives.
const flightFunction = "flight_sql"

// flight replaces flight_sql('source', $$query$$).
func (r *rewriter) flight(n, f node) (any, error) {
	const form = "Write flight_sql('source', $$SELECT …$$); the text between $$ and $$ is in the engine's dialect."
	if o := text(n, "with_ordinality"); o != "" && o != "WITHOUT_ORDINALITY" {
		return nil, r.fail(n, commit.CodeSQLRefused, "WITH ORDINALITY isn't supported for "+flightFunction+": a task may read a part of the rows", "")
	}
	var args []string
	for _, arg := range list(f, "children") {
		arg, _ := arg.(node)
		name, value := namedArgument(arg)
		s, ok := stringOf(value)
		if !ok || name != "" || s == "" {
			return nil, r.fail(arg, commit.CodeSQLReaderArgument, flightFunction+" takes a source and a query, both written out as strings", form)
		}
		args = append(args, s)
	}
	if len(args) != 2 {
		return nil, r.fail(n, commit.CodeSQLReaderArgument, flightFunction+" takes two arguments, a source and a query", form)
	}
	s := plan.Source{Kind: plan.SourceFlightSQL, Flight: &plan.FlightSource{Name: args[0], Query: args[1]}}
	return r.use(n, s, flightFunction), nil
}

// runQueries has the engines run the queries of the sources that need it. Nothing of
// the statement is wrong by then that can be seen without their columns.
func (r *rewriter) runQueries() error {
	for i := range r.sources {
		s := &r.sources[i]
		if s.Kind != plan.SourceFlightSQL {
			continue
		}
		if r.opts.RunQuery == nil {
			_, err := r.a.flightSources("read", s.Flight.Name)
			return err
		}
		ran, err := r.opts.RunQuery(r.ctx, s.Flight.Name, s.Flight.Query)
		if err != nil {
			return err
		}
		ran.View = s.View
		*s = ran
	}
	return nil
}
