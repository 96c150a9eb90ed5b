package client

import (
	"context"
	"encoding/json"

	"github.com/firn-project/firn/internal/wire/firnpb"
)

// Table describes a table.
type Table struct {
	Name   string
	UUID   string
	Format string
	// FormatVersion is that of the table format.
	FormatVersion int
	// Location and MetadataLocation are URIs.
	Location         string
	MetadataLocation string
	// SnapshotID is the current snapshot; empty for a table without one. It is
	// a string because JSON readers truncate 64-bit numbers.
	SnapshotID string
	Snapshots  int
	// Schema and PartitionSpec are as the Iceberg spec serialises them.
	Schema, PartitionSpec json.RawMessage
	Properties            map[string]string
	// Rows, Files and Bytes are totals of the current snapshot.
	Rows, Files, Bytes int64
	// RefusesCommits is why the scheduler commits nothing to the table; empty when
	// it does.
	RefusesCommits string
}

func tableOf(p *firnpb.TableDescription) Table {
	return Table{
		Name: p.GetTable(), UUID: p.GetUuid(), Format: p.GetFormat(), FormatVersion: int(p.GetFormatVersion()),
		Location: p.GetLocation(), MetadataLocation: p.GetMetadataLocation(),
		SnapshotID: p.GetCurrentSnapshotId(), Snapshots: int(p.GetSnapshots()),
		Schema: p.GetSchemaJson(), PartitionSpec: p.GetPartitionSpecJson(), Properties: p.GetProperties(),
		Rows: p.GetRows(), Files: p.GetFiles(), Bytes: p.GetBytes(), RefusesCommits: p.GetRefusesCommits(),
	}
}

// Tables lists the full names of the tables in a namespace, or in all
// namespaces of a catalog when none is given, or in all catalogs.
func (c *Client) Tables(ctx context.Context, catalog string, namespace ...string) ([]string, error) {
	resp, err := c.rpc.ListTables(ctx, &firnpb.ListTablesRequest{Catalog: catalog, Namespace: namespace})
	if err != nil {
		return nil, c.fromRPC(ctx, err)
	}
	return resp.GetTables(), nil
}

// DescribeTable describes a table as it is now. The name is written as in SQL.
func (c *Client) DescribeTable(ctx context.Context, name string) (Table, error) {
	p, err := c.rpc.DescribeTable(ctx, &firnpb.DescribeTableRequest{Table: name})
	if err != nil {
		return Table{}, c.fromRPC(ctx, err)
	}
	return tableOf(p), nil
}

// RegisterTable adopts an existing table into a catalog by the URI of its
// metadata file.
func (c *Client) RegisterTable(ctx context.Context, name, metadataLocation string) (Table, error) {
	p, err := c.rpc.RegisterTable(ctx, &firnpb.RegisterTableRequest{Table: name, MetadataLocation: metadataLocation})
	if err != nil {
		return Table{}, c.fromRPC(ctx, err)
	}
	return tableOf(p), nil
}

// AllowCommits lets commits through again to a table that lost the token of one.
// Allowing it for another table changes nothing.
func (c *Client) AllowCommits(ctx context.Context, name string) (Table, error) {
	p, err := c.rpc.AllowCommits(ctx, &firnpb.AllowCommitsRequest{Table: name})
	if err != nil {
		return Table{}, c.fromRPC(ctx, err)
	}
	return tableOf(p), nil
}
