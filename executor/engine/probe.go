package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/firn-project/firn/internal/duckdb"
	"github.com/firn-project/firn/plan"
)

// probeSettings keep what DuckDB knows about the data out of the plan that is
// looked at: tables are bound as empty ones, and an operator left out because of
// that would be missed. A sample stays an operator instead of becoming part of the
// scan, and a limit stays one instead of becoming a join, so that what is told as
// the reason stands in the statement.
var probeSettings = map[string]string{"disabled_optimizers": "statistics_propagation,empty_result_pullup,sampling_pushdown,late_materialization"}

// Probe finds out what a query's sources are and what the query gives. Nothing
// of the sources is read but footers of Parquet files and samples of CSV and JSON
// files; tables and uploads are bound by their columns alone.
func (e *Engine) Probe(ctx context.Context, req plan.ProbeRequest) (plan.ProbeResult, error) {
	e.probes++
	s, err := e.open(ctx, TaskInfo{Attempt: fmt.Sprintf("probe-%d", e.probes)}, forProbe)
	if err != nil {
		return plan.ProbeResult{}, err
	}
	defer s.close()
	res := plan.ProbeResult{Sources: slices.Clone(req.Sources)}
	info, err := s.checkTree(ctx, req.SQL, req.Sources)
	if err != nil {
		return res, s.tell(err, nil)
	}
	for i := range res.Sources {
		if err := s.probeSource(ctx, &res.Sources[i]); err != nil {
			return res, s.tell(err, res.Sources[i:i+1])
		}
	}
	cols, err := s.db.Describe(ctx, req.SQL)
	if err != nil {
		return res, s.tell(err, nil)
	}
	res.Columns = planColumns(cols)
	if res.Deterministic, err = s.deterministic(ctx, info); err != nil {
		return res, err
	}
	res.RowWise, res.Why, err = s.rowWise(ctx, req.SQL, res.Sources)
	s.clean = err == nil
	return res, err
}

// planColumns gives columns as a plan has them. Enums come out of queries as
// text.
func planColumns(cols []duckdb.Column) []plan.Column {
	out := make([]plan.Column, len(cols))
	for i, c := range cols {
		if strings.HasPrefix(c.Type, "ENUM(") && strings.HasSuffix(c.Type, ")") {
			c.Type = "VARCHAR"
		}
		out[i] = plan.Column{Name: c.Name, Type: c.Type}
	}
	return out
}

// probeSource completes a source and makes its view.
func (s *session) probeSource(ctx context.Context, src *plan.Source) error {
	if err := checkSource(*src); err != nil {
		return err
	}
	switch src.Kind {
	case plan.SourceTable, plan.SourceUpload, plan.SourceFrame, plan.SourceFlightSQL:
		return s.bindTemplate(ctx, *src)
	case plan.SourceParquet, plan.SourceCSV, plan.SourceJSON:
	default:
		return fmt.Errorf("engine: unknown kind of source %q", src.Kind)
	}
	files, err := s.expand(ctx, *src)
	if err != nil {
		return err
	}
	src.Files = files
	in, err := s.probeFiles(ctx, src)
	if err != nil {
		return err
	}
	if err := s.pinHive(ctx, src, in); err != nil {
		return err
	}
	cols, err := s.db.Describe(ctx, "SELECT * FROM "+call(readers[src.Kind], in, src.Options))
	if err != nil {
		return err
	}
	src.Columns = planColumns(cols)
	body, err := fileQuery(*src, in, 0)
	if err != nil {
		return err
	}
	name, err := s.viewName(ctx, src.View)
	if err != nil {
		return err
	}
	return s.create(ctx, "VIEW", name, " AS "+body)
}

// probeFiles checks the files of a source and pins how they are read.
func (s *session) probeFiles(ctx context.Context, src *plan.Source) ([]input, error) {
	if src.Kind == plan.SourceParquet {
		in, err := s.probeParquet(ctx, *src)
		if err != nil {
			return nil, err
		}
		for i := range in {
			src.Files[i] = in[i].SourceFile
		}
		return in, s.checkDrift(ctx, *src, in)
	}
	for _, f := range src.Files {
		if f.Size == 0 {
			return nil, badFile(f.Path, "the file is empty (0 bytes)")
		}
	}
	in, err := s.stage(ctx, *src)
	if err != nil {
		return nil, err
	}
	if src.Kind == plan.SourceCSV {
		return in, s.pinCSV(ctx, src, in)
	}
	return in, s.pinJSON(ctx, src, in)
}

// bindTemplate makes the source's view over an empty table of its columns. The
// table alone would have more than them: a rowid.
func (s *session) bindTemplate(ctx context.Context, src plan.Source) error {
	name, err := s.viewName(ctx, src.View)
	if err != nil {
		return err
	}
	defs := make([]string, len(src.Columns))
	for i, c := range src.Columns {
		defs[i] = duckdb.Ident(c.Name) + " " + c.Type
	}
	table := fmt.Sprintf("memory.main.firn_template_%d", len(s.made))
	if err := s.create(ctx, "TABLE", table, " ("+strings.Join(defs, ", ")+")"); err != nil {
		return err
	}
	return s.create(ctx, "VIEW", name, " AS SELECT "+columnList(src.Columns)+" FROM "+table)
}

// scans and rowOperators are the physical operators of a row-wise query.
var (
	scans        = []string{"PARQUET_SCAN", "READ_PARQUET", "READ_CSV", "READ_CSV_AUTO", "READ_JSON", "READ_JSON_AUTO", "SEQ_SCAN"}
	rowOperators = []string{"PROJECTION", "FILTER", "UNNEST"}
)

type operator struct {
	Name     string     `json:"name"`
	Children []operator `json:"children"`
}

// rowWise says whether, and why, a query can be run on slices of its source.
func (s *session) rowWise(ctx context.Context, sql string, sources []plan.Source) (bool, string, error) {
	if len(sources) == 0 {
		return false, "the query reads no source", nil
	}
	explained, err := s.db.ExplainJSON(ctx, sql)
	if err != nil {
		return false, "", s.tell(err, sources)
	}
	return rowWise(explained, sources)
}

// rowWise reads DuckDB's physical plan: a query is row-wise if it is one chain of
// known operators that each look at one row, down to the scan of its only
// source. It is an allow-list: what isn't known makes the query run whole.
func rowWise(explained string, sources []plan.Source) (bool, string, error) {
	var roots []operator
	if err := json.Unmarshal([]byte(explained), &roots); err != nil || len(roots) != 1 {
		return false, "", fmt.Errorf("engine: DuckDB's plan can't be read: %w", err)
	}
	if len(sources) != 1 {
		return false, fmt.Sprintf("the query reads %d sources", len(sources)), nil
	}
	if byName(sources[0].Options) {
		return false, "union_by_name needs all files at once", nil
	}
	if slices.ContainsFunc(sources[0].Columns, func(c plan.Column) bool { return c.Name == rowNumber }) {
		return false, "the source has a column " + rowNumber + ", so its files can't be sliced", nil
	}
	for op := roots[0]; ; op = op.Children[0] {
		name := strings.TrimSpace(op.Name)
		switch {
		case slices.Contains(scans, name) && len(op.Children) == 0:
			return true, "scan, filter and projection look at one row at a time", nil
		case slices.Contains(rowOperators, name) && len(op.Children) == 1:
		default:
			return false, fmt.Sprintf("the operator %s needs all rows at once", name), nil
		}
	}
}
