package main

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/internal/cluster"
	"github.com/firn-project/firn/internal/render"
	"github.com/spf13/cobra"
)

func (a *app) tableCommand() *cobra.Command {
	return group("table", "List, describe and register tables, delete what failed jobs left",
		a.tableListCommand(), a.tableDescribeCommand(), a.tableRegisterCommand(), a.tableOrphansCommand(), a.tableAllowCommitsCommand())
}

// tableJSON is `firn table describe -o json`. Scripts depend on it.
type tableJSON struct {
	Table            string            `json:"table"`
	Format           string            `json:"format"`
	FormatVersion    int               `json:"format_version"`
	UUID             string            `json:"uuid"`
	Location         string            `json:"location"`
	MetadataLocation string            `json:"metadata_location"`
	SnapshotID       *string           `json:"current_snapshot_id"`
	Snapshots        int               `json:"snapshots"`
	Schema           json.RawMessage   `json:"schema"`
	PartitionSpec    json.RawMessage   `json:"partition_spec"`
	Properties       map[string]string `json:"properties"`
	Rows             int64             `json:"rows"`
	Files            int64             `json:"files"`
	Bytes            int64             `json:"bytes"`
	RefusesCommits   string            `json:"refuses_commits,omitempty"`
}

func tableObject(t client.Table) tableJSON {
	j := tableJSON{
		Table: t.Name, Format: t.Format, FormatVersion: t.FormatVersion, UUID: t.UUID,
		Location: t.Location, MetadataLocation: t.MetadataLocation, Snapshots: t.Snapshots,
		Schema: t.Schema, PartitionSpec: t.PartitionSpec, Properties: t.Properties,
		Rows: t.Rows, Files: t.Files, Bytes: t.Bytes, RefusesCommits: t.RefusesCommits,
	}
	if t.SnapshotID != "" {
		j.SnapshotID = &t.SnapshotID
	}
	if j.Properties == nil {
		j.Properties = map[string]string{}
	}
	for _, raw := range []*json.RawMessage{&j.Schema, &j.PartitionSpec} {
		if len(*raw) == 0 {
			*raw = json.RawMessage("null")
		}
	}
	return j
}

func (a *app) tableListCommand() *cobra.Command {
	t := target{executors: cluster.NoExecutors}
	cmd := &cobra.Command{
		Use: "list [CATALOG[.NAMESPACE]]", Aliases: []string{"ls"}, Short: "List tables",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage(cmd, "%q is one argument too many", args[1])
			}
			return nil
		},
	}
	a.command(cmd, &t, func(ctx context.Context, s *session, f render.Format, args []string) error {
		var parts []string
		if len(args) == 1 {
			parts = strings.Split(args[0], ".")
		}
		catalog := ""
		if len(parts) > 0 {
			catalog, parts = parts[0], parts[1:]
		}
		names, err := s.Tables(ctx, catalog, parts...)
		if err != nil {
			return err
		}
		type table struct {
			Table string `json:"table"`
		}
		var tables []table
		for _, n := range names {
			tables = append(tables, table{n})
		}
		return render.List(a.stdout, f, []string{"table"}, tables, func(t table) []string { return []string{t.Table} })
	})
	return cmd
}

func (a *app) tableDescribeCommand() *cobra.Command {
	t := target{executors: cluster.NoExecutors}
	cmd := &cobra.Command{Use: "describe NAME", Short: "Show a table: location, schema, partitions, totals", Args: arguments("the name of a table")}
	a.command(cmd, &t, func(ctx context.Context, s *session, f render.Format, args []string) error {
		table, err := s.DescribeTable(ctx, args[0])
		if err != nil {
			return err
		}
		return a.showTable(f, table)
	})
	return cmd
}

func (a *app) tableRegisterCommand() *cobra.Command {
	t := target{executors: cluster.NoExecutors}
	cmd := &cobra.Command{
		Use: "register NAME METADATA_LOCATION", Short: "Adopt an existing table by its metadata file",
		Args: arguments("the name of the table", "the location of its metadata file"),
	}
	a.command(cmd, &t, func(ctx context.Context, s *session, f render.Format, args []string) error {
		table, err := s.RegisterTable(ctx, args[0], args[1])
		if err != nil {
			return err
		}
		return a.showTable(f, table)
	})
	return cmd
}

func (a *app) tableAllowCommitsCommand() *cobra.Command {
	t := target{executors: cluster.NoExecutors}
	cmd := &cobra.Command{
		Use: "allow-commits NAME", Short: "Commit again to a table that lost the token of a commit",
		Long: `The scheduler writes a token into the table with each commit, by which a statement that is sent again
is recognised. When a commit has landed and the table doesn't show its token, because the catalog or a
tool that rewrites the table's metadata dropped it, the scheduler commits nothing more to that table
(FIRN-2013). Find out what dropped it, with ` + "`firn catalog check`" + ` for the catalog, and repair it. Then this
command lets commits through again.`,
		Args: arguments("the name of the table"),
	}
	a.command(cmd, &t, func(ctx context.Context, s *session, f render.Format, args []string) error {
		table, err := s.AllowCommits(ctx, args[0])
		if err != nil {
			return err
		}
		return a.showTable(f, table)
	})
	return cmd
}

// showTable writes one table.
func (a *app) showTable(f render.Format, t client.Table) error {
	j := tableObject(t)
	switch f {
	case render.JSON, render.JSONL:
		return render.Object(a.stdout, j)
	case render.CSV:
		return render.List(a.stdout, f, []string{"table", "format", "location", "metadata_location", "current_snapshot_id", "rows", "files", "bytes"},
			[]tableJSON{j}, func(j tableJSON) []string {
				return []string{j.Table, j.Format, j.Location, j.MetadataLocation, t.SnapshotID, number(j.Rows), number(j.Files), number(j.Bytes)}
			})
	}
	p := &printer{w: a.stdout}
	p.field("table", j.Table)
	p.field("format", j.Format+" version "+strconv.Itoa(j.FormatVersion))
	p.field("uuid", j.UUID)
	p.field("location", j.Location)
	p.field("metadata location", j.MetadataLocation)
	p.field("current snapshot", words(t.SnapshotID, "(of "+strconv.Itoa(j.Snapshots)+")"))
	p.field("rows", thousands(j.Rows))
	p.field("files", thousands(j.Files))
	p.field("bytes", sizeText(j.Bytes))
	p.field("takes no commits", j.RefusesCommits)
	p.block("schema", string(j.Schema))
	p.block("partition spec", string(j.PartitionSpec))
	for _, key := range slices.Sorted(maps.Keys(j.Properties)) {
		p.field("property", key+" = "+j.Properties[key])
	}
	return p.err
}
