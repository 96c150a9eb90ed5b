package main

import (
	"context"
	"errors"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/cluster"
	"github.com/firn-project/firn/internal/render"
	"github.com/spf13/cobra"
)

func (a *app) catalogCommand() *cobra.Command {
	return group("catalog", "List catalogs, and check what they do", a.catalogListCommand(), a.catalogCheckCommand())
}

// catalogJSON is `firn catalog list -o json`. Scripts depend on it.
type catalogJSON struct {
	Catalog string `json:"catalog"`
	Type    string `json:"type"`
	URI     string `json:"uri"`
	Origin  string `json:"origin"`
	Mode    string `json:"mode"`
	Checked string `json:"checked"`
}

func (a *app) catalogListCommand() *cobra.Command {
	t := target{executors: cluster.NoExecutors}
	cmd := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "List the catalogs and what their checks found", Args: arguments()}
	a.command(cmd, &t, func(ctx context.Context, s *session, f render.Format, _ []string) error {
		rows, err := ask(ctx, s, "SHOW CATALOGS", 6)
		if err != nil {
			return err
		}
		var all []catalogJSON
		for _, r := range rows {
			all = append(all, catalogJSON{r[0], r[1], r[2], r[3], r[4], r[5]})
		}
		return render.List(a.stdout, f, []string{"catalog", "type", "uri", "origin", "mode", "checked"}, all, func(c catalogJSON) []string {
			return []string{c.Catalog, c.Type, c.URI, c.Origin, c.Mode, c.Checked}
		})
	})
	return cmd
}

// probeJSON is a line of `firn catalog check -o json`. Scripts depend on it.
type probeJSON struct {
	Probe   string `json:"probe"`
	Verdict string `json:"verdict"`
	Answer  string `json:"answer"`
	Tried   string `json:"tried"`
}

func (a *app) catalogCheckCommand() *cobra.Command {
	t := target{executors: cluster.NoExecutors}
	cmd := &cobra.Command{
		Use: "check NAME", Short: "Probe what a catalog does with stale and long requests, and keep what was found",
		Long: `Makes a namespace and a table in the catalog, sends commits that must be taken and commits that must
be refused, reads after each what became of it, and removes the table and the namespace.

The last line is the mode in which Firn commits to the catalog's tables from then on: seat; no-seat, where
a commit whose answer was lost stays unknown unless it is found, and overwrites are refused; or unfit,
where nothing is written. A result of unfit, and a check that couldn't be finished, exit with an error.`,
		Args: arguments("the name of a catalog"),
	}
	a.command(cmd, &t, func(ctx context.Context, s *session, f render.Format, args []string) error {
		rows, err := ask(ctx, s, `CHECK CATALOG "`+strings.ReplaceAll(args[0], `"`, `""`)+`"`, 4)
		if err != nil {
			return err
		}
		var all []probeJSON
		for _, r := range rows {
			all = append(all, probeJSON{r[0], r[1], r[2], r[3]})
		}
		err = render.List(a.stdout, f, []string{"probe", "verdict", "answer", "tried"}, all, func(p probeJSON) []string {
			return []string{p.Probe, p.Verdict, p.Answer, p.Tried}
		})
		if last := all[len(all)-1]; err == nil && last.Verdict == "failed" {
			e := &commit.Error{Code: commit.CodeCatalogUnfit, Op: "check catalog", Object: args[0], Cause: errors.New(last.Tried)}
			if last.Answer != "unfit" {
				e.Code = commit.CodeCatalogCheck
			}
			return e
		}
		return err
	})
	return cmd
}

// ask runs a statement whose answer is rows of texts, at least one.
func ask(ctx context.Context, s *session, statement string, columns int) ([][]string, error) {
	res, err := s.Execute(ctx, client.Statement{SQL: statement})
	if err != nil {
		return nil, err
	}
	var out [][]string
	for b, err := range res.Rows(ctx) {
		if err != nil {
			return nil, err
		}
		for i := range int(b.NumRows()) {
			row := make([]string, columns)
			for c := range min(columns, int(b.NumCols())) {
				if col, ok := b.Column(c).(*array.String); ok {
					row[c] = col.Value(i)
				}
			}
			out = append(out, row)
		}
	}
	if len(out) == 0 {
		return nil, &commit.Error{Code: commit.CodeCatalogCheck, Op: "run", Object: statement, Cause: errors.New("the scheduler gave no rows")}
	}
	return out, nil
}
