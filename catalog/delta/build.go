package delta

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/format/delta"
)

// checkFile says whether one file fits the table, and gives its statistics.
func (v *View) checkFile(written *delta.Struct, f commit.File) (stats string, err error) {
	d := v.snap.definition
	s, err := delta.FileStats(written, d.Partition, f)
	if err != nil {
		return "", err
	}
	if err := delta.CheckPartition(d.Schema, d.Partition, f); err != nil {
		return "", err
	}
	for i, l := range delta.FileLeaves(written, d.Partition) {
		if c := d.Schema.Column(l.Path[0]); len(l.Path) == 1 && c != nil && !c.Nullable {
			if n, ok := f.NullCounts[i+1]; !ok || n != 0 {
				return "", fmt.Errorf("column %.200q may not be null, and the file doesn't say that it has none", c.Name)
			}
		}
	}
	return s.JSON(delta.StringPrefix(d.Properties))
}

// ledgerTokens is how many tokens a commit's ledger keeps. Each commit holds it.
const ledgerTokens = 200

// Build implements commit.Table. Nothing is written before the send: a request is
// the content of a version.
func (t *Table) Build(ctx context.Context, m commit.Metadata, units []commit.Unit) (commit.Request, error) {
	fail := func(err error) (commit.Request, error) {
		return commit.Request{}, newError(commit.CodeCatalog, "prepare commit to", t.name.String(), err)
	}
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	v, ok := m.(*View)
	if !ok || len(units) == 0 {
		return fail(errors.New("not a read of this driver, or no units"))
	}
	if t.ready != nil {
		if err := t.ready(ctx); err != nil {
			return commit.Request{}, err
		}
		t.ready = nil
	}
	version := v.snap.Version() + 1
	c := Commit{Info: CommitInfo{Operation: "WRITE", IsolationLevel: string(Serializable), EngineInfo: "Firn/" + engineVersion(), TxnID: uuid.NewString()}}
	var err error
	if c.Info.Timestamp, c.Info.InCommitTimestamp, err = v.snap.Times(ctx, t.now()); err != nil {
		return fail(err)
	}
	read, blind := v.snap.Version(), true
	c.Info.ReadVersion, c.Info.IsBlindAppend = &read, &blind
	by, err := json.Marshal(append([]string{}, v.snap.definition.Partition...))
	if err != nil {
		return fail(err)
	}
	c.Info.OperationParameters = map[string]string{"mode": "Append", "partitionBy": string(by)}
	var files, rows, size int64
	r := commit.Request{
		ID: uuid.Must(uuid.NewV7()).String(), SnapshotID: snapshotID(version, c.Info.TxnID), Head: v.Head(commit.MainBranch), Branch: commit.MainBranch,
		Seat: commit.Seat{Number: version},
	}
	for _, u := range units {
		if err := t.checkOld(ctx, v, u); err != nil {
			return commit.Request{}, err
		}
		adds, err := v.adds(u, c.Info.Timestamp)
		if err != nil {
			return commit.Request{}, err
		}
		c.Adds = append(c.Adds, adds...)
		files, rows, size = files+int64(u.Files.Len()), rows+u.Rows, size+u.Bytes
		r.Tokens = append(r.Tokens, u.Token)
		// A key that carries the time at which it was made is found by commitInfo
		// and the ledger, or refused for its age.
		if _, generated := commit.KeyTime(u.Key); !generated && u.Key != "" {
			now := c.Info.Timestamp
			c.Txns = append(c.Txns, Txn{AppID: txnApp(u), Version: version, LastUpdated: &now})
		}
	}
	c.Info.OperationMetrics = map[string]string{
		"numFiles": strconv.FormatInt(files, 10), "numOutputRows": strconv.FormatInt(rows, 10), "numOutputBytes": strconv.FormatInt(size, 10),
	}
	c.Info.Tokens, c.Info.Units = formatUnits(units)
	c.Info.Ledger = commit.NextLedger(v, units, version, commit.LedgerKeep{Tokens: ledgerTokens}).String()
	data, err := c.Encode()
	if err != nil {
		return fail(err)
	}
	r.Payload = &payload{base: v.snap, version: version, data: data}
	return r, nil
}

// adds are the actions of a unit's files.
func (v *View) adds(u commit.Unit, now int64) ([]*Add, error) {
	if err := v.checkTable(u); err != nil {
		return nil, err
	}
	d, written := v.snap.definition, v.schemas[u.SchemaID].schema
	root := v.Location() + "/"
	adds := make([]*Add, u.Files.Len())
	for i, f := range u.Files.All() {
		rel, ok := strings.CutPrefix(f.Path, root)
		if !ok || rel == "" || path.Clean("/"+rel) != "/"+rel {
			return nil, commit.Misfit(u, f.Path, "files lie under the table", "the table is at "+v.Location())
		}
		stats, err := v.checkFile(written, f)
		if err != nil {
			return nil, commit.Misfit(u, f.Path, "the file fits the table", err.Error())
		}
		a := &Add{
			Path: delta.EncodePath(rel), PartitionValues: map[string]*string{}, Size: f.Size, ModificationTime: now, DataChange: true, Stats: stats,
		}
		for n, p := range f.Partition {
			var text *string
			if !p.Null && len(p.Value) > 0 {
				s := string(p.Value)
				text = &s
			}
			a.PartitionValues[d.Partition[n]] = text
		}
		adds[i] = a
	}
	return adds, nil
}

// engineVersion is the version of the module that the binary was built from.
var engineVersion = sync.OnceValue(func() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
})
