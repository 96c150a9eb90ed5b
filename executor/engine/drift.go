package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/duckdb"
	"github.com/firn-project/firn/plan"
)

func drift(f input, why string) error {
	return &commit.Error{
		Code: commit.CodeSchemaDrift, Op: "read file", Object: f.Path, Cause: errors.New(why),
		Hint: "Read the files as separate sources and combine them with UNION ALL BY NAME, or give the reader union_by_name = true.",
	}
}

// checkDrift compares the columns of Parquet files with those of the first one,
// by name. DuckDB by itself ignores columns that only later files have and casts
// what differs; a task that holds only later files would then give something
// else than one that holds all.
func (s *session) checkDrift(ctx context.Context, src plan.Source, in []input) error {
	if byName(src.Options) {
		return nil
	}
	var want []duckdb.Column
	for _, f := range in[1:] {
		if f.schema == in[0].schema {
			continue
		}
		if want == nil {
			var err error
			if want, err = s.ownColumns(ctx, src, in[0]); err != nil {
				return err
			}
		}
		got, err := s.ownColumns(ctx, src, f)
		if err != nil {
			return err
		}
		if err := compareColumns(in[0], f, want, got); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) ownColumns(ctx context.Context, src plan.Source, f input) ([]duckdb.Column, error) {
	opts := without(src.Options, outside)
	opts["hive_partitioning"] = "false"
	cols, err := s.db.Describe(ctx, "SELECT * FROM "+call("read_parquet", []input{f}, opts))
	if err != nil {
		return nil, queryError(err, []plan.Source{{Files: []plan.SourceFile{f.SourceFile}}})
	}
	return cols, nil
}

func compareColumns(first, f input, want, got []duckdb.Column) error {
	for _, w := range want {
		i := slices.IndexFunc(got, func(g duckdb.Column) bool { return g.Name == w.Name })
		if i < 0 {
			return drift(f, fmt.Sprintf("column %q is missing, %s has it", w.Name, first.Path))
		}
		if got[i].Type != w.Type {
			return drift(f, fmt.Sprintf("column %q is %s, but %s in %s", w.Name, got[i].Type, w.Type, first.Path))
		}
	}
	for _, g := range got {
		if !slices.ContainsFunc(want, func(w duckdb.Column) bool { return g.Name == w.Name }) {
			return drift(f, fmt.Sprintf("it has a column %q, %s lacks it", g.Name, first.Path))
		}
	}
	return nil
}
