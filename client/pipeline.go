package client

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/firn-project/firn/commit"
)

// Pipeline builds one INSERT from steps: what to read, how to change it, where
// to write it. It becomes a single statement and so a single job with a single
// commit. Mistakes made on the way are told by Run.
//
//	status, err := c.Pipeline().
//		ReadParquet("/data/flights/*.parquet").
//		SQL("SELECT date, delay FROM input WHERE delay > 0").
//		Write("lake.air.late").Append().
//		Run(ctx)
type Pipeline struct {
	client *Client
	query  string
	target string
	append bool
	byName bool
	stmt   Statement
	err    error
}

// Pipeline starts an empty pipeline.
func (c *Client) Pipeline() *Pipeline { return &Pipeline{client: c} }

// ReadOptions are the arguments of a file reader by name, such as header or
// delim of read_csv, each written as a SQL literal: {"header": "true", "delim": "';'"}.
type ReadOptions map[string]string

// ReadParquet reads Parquet files; paths may be globs.
func (p *Pipeline) ReadParquet(paths ...string) *Pipeline { return p.read("read_parquet", paths, nil) }

// ReadCSV reads CSV files.
func (p *Pipeline) ReadCSV(opts ReadOptions, paths ...string) *Pipeline {
	return p.read("read_csv", paths, opts)
}

// ReadJSON reads JSON files: an array, or one object a line.
func (p *Pipeline) ReadJSON(opts ReadOptions, paths ...string) *Pipeline {
	return p.read("read_json", paths, opts)
}

// ReadTable reads a table of a catalog.
func (p *Pipeline) ReadTable(name string) *Pipeline {
	quoted, err := quoteName(name)
	p.fail(err)
	return p.source("SELECT * FROM " + quoted)
}

func (p *Pipeline) read(fn string, paths []string, opts ReadOptions) *Pipeline {
	if len(paths) == 0 {
		p.fail(badPipeline(fn+" has no path", "Name at least one file or glob."))
	}
	quoted := make([]string, len(paths))
	for i, path := range paths {
		quoted[i] = quoteText(path)
	}
	args := strings.Join(quoted, ", ")
	if len(paths) > 1 {
		args = "[" + args + "]"
	}
	var argsSb71 strings.Builder
	for _, name := range slices.Sorted(maps.Keys(opts)) {
		argsSb71.WriteString(", " + name + " = " + opts[name])
	}
	args += argsSb71.String()
	return p.source("SELECT * FROM " + fn + "(" + args + ")")
}

func (p *Pipeline) source(query string) *Pipeline {
	if p.query != "" {
		p.fail(badPipeline("it has two sources", "Join them in one SQL step that reads both."))
	}
	p.query = query
	return p
}

// SQL applies a query to what the pipeline has so far, which it calls input. As
// the first step it may read whatever a statement may. Several steps follow each
// other.
func (p *Pipeline) SQL(query string) *Pipeline {
	query = strings.TrimSuffix(strings.TrimSpace(query), ";")
	switch {
	case query == "":
		p.fail(badPipeline("a SQL step is empty", "Write a SELECT."))
	case p.query == "":
		p.query = query
	default:
		// The line breaks end a comment that a step may end with.
		p.query = "WITH input AS (\n" + p.query + "\n) SELECT * FROM (\n" + query + "\n)"
	}
	return p
}

// Write names the table that the rows go to.
func (p *Pipeline) Write(table string) *Pipeline {
	quoted, err := quoteName(table)
	p.fail(err)
	p.target = quoted
	return p
}

// Append adds the rows to the table and removes none.
func (p *Pipeline) Append() *Pipeline {
	p.append = true
	return p
}

// ByName matches columns by their names instead of their order.
func (p *Pipeline) ByName() *Pipeline {
	p.byName = true
	return p
}

// With sets the statement's key, session, reject limit and time zone. Its SQL is
// ignored.
func (p *Pipeline) With(s Statement) *Pipeline {
	p.stmt = s
	return p
}

// Statement is the INSERT that the pipeline stands for.
func (p *Pipeline) Statement() (Statement, error) {
	switch {
	case p.err != nil:
		return Statement{}, p.err
	case p.query == "":
		return Statement{}, badPipeline("it reads nothing", "Begin with ReadParquet, ReadCSV, ReadJSON, ReadTable or SQL.")
	case p.target == "":
		return Statement{}, badPipeline("it writes nothing", "End with Write(table).Append().")
	case !p.append:
		return Statement{}, badPipeline("it doesn't say how to write", "Call Append after Write.")
	}
	s := p.stmt
	s.SQL = "INSERT INTO " + p.target + " "
	if p.byName {
		s.SQL += "BY NAME "
	}
	s.SQL += p.query
	return s, nil
}

// Start submits the pipeline and returns its job.
func (p *Pipeline) Start(ctx context.Context) (*Job, error) {
	s, err := p.Statement()
	if err != nil {
		return nil, err
	}
	res, err := p.client.Execute(ctx, s)
	if err != nil {
		return nil, err
	}
	return res.jobOf()
}

// Run submits the pipeline and waits for its end; see Job.Wait.
func (p *Pipeline) Run(ctx context.Context) (JobStatus, error) {
	job, err := p.Start(ctx)
	if err != nil {
		return JobStatus{}, err
	}
	return job.Wait(ctx)
}

// fail keeps the first mistake.
func (p *Pipeline) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// jobOf is the job of a statement that must have one.
func (r *Result) jobOf() (*Job, error) {
	if r.Job == nil {
		return nil, &commit.Error{
			Code: commit.CodeProtocol, Op: "run statement", Object: r.Statement,
			Cause: errors.New("the scheduler answered without a job"),
		}
	}
	return r.Job, nil
}

func badPipeline(cause, hint string) error {
	return &commit.Error{Code: commit.CodeBadCall, Op: "build pipeline", Cause: errors.New(cause), Hint: hint}
}
