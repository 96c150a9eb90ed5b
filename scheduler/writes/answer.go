package writes

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/format/delta"
	"github.com/firn-project/firn/format/iceberg"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/openwrite"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/jobview"
	"github.com/firn-project/firn/scheduler/journal"
	"github.com/firn-project/firn/scheduler/writes/lifecycle"
)

func notFound(err error) bool { return errors.Is(err, journal.ErrNotFound) }

// endedEarly is what the job of a write that never was open failed of.
func endedEarly(w Write) error {
	if w.Job.GetError() == nil || w.Job.GetCommit() != string(commit.CommitNone) {
		return nil
	}
	return wire.ErrorFromProto(w.Job.GetError())
}

// viewOf is a write in one word.
func (s *Service) viewOf(w Write, state lifecycle.State) openwrite.State {
	j := lifecycle.Job{Commit: commit.CommitState(w.Job.GetCommit()), Other: w.Job.GetReport().GetOtherSubmission(), DryRun: w.DryRun}
	switch graph.State(w.Job.GetState()) {
	case graph.Succeeded:
		j.Ended = true
	case graph.JobFailed:
		j.Ended, j.Failed = true, true
	case graph.Cancelled:
		j.Ended, j.Cancelled = true, true
	}
	return lifecycle.View(state, j)
}

func (s *Service) statusOf(w Write, state lifecycle.State) openwrite.Status {
	view := s.viewOf(w, state)
	out := openwrite.Status{
		WriteID: w.Job.GetJobId(), Key: w.Job.GetIdempotencyKey(), State: view, Commit: w.Job.GetCommit(),
		Manifests: int(state.Manifests), SealedHandles: state.Handles, SealDigest: state.Digest,
	}
	switch view {
	case openwrite.StateOpen:
		out.Expires = &state.Expires
	case openwrite.StateCommitting:
		out.WaitsFor = s.host.WaitsFor(out.WriteID)
	case openwrite.StateCommittedByOther:
		out.SealedHandles, out.SealDigest = nil, "" // those aren't what is committed
	}
	if r := jobview.JobOf(w.Job).Report; r != nil && w.Job.GetReport() != nil {
		out.Report = &openwrite.Report{
			Table: r.Table, Format: r.Format, Operation: r.Operation, Commit: r.Commit, Deduplicated: r.Deduplicated, RolledBack: r.RolledBack,
			OtherSubmission: r.OtherSubmission, Rows: r.Rows, Files: r.Files, Bytes: r.Bytes, SnapshotID: r.SnapshotID,
			Attempts: int64(r.Attempts), Conflicts: int64(r.Conflicts), Committed: r.Committed,
		}
	}
	if e := w.Job.GetError(); e != nil {
		outcome := commit.CommitNone
		switch view {
		case openwrite.StateUnknown:
			outcome = commit.CommitUnknown
		case openwrite.StateRefused:
			outcome = commit.CommitRefused
		case openwrite.StateCommitted:
			outcome = commit.CommitCommitted
		}
		out.Error = openwrite.FaultOf(wire.ErrorFromProto(e), outcome)
	}
	return out
}

// contextOf makes the context of an open write, with keys.
func (s *Service) contextOf(ctx context.Context, w Write, state lifecycle.State, expired string) (*openwrite.Context, error) {
	t, ext := w.Plan.Target, w.context()
	c := &openwrite.Context{
		WriteID: state.WriteID, Key: w.Job.GetIdempotencyKey(), Table: t.Name.String(), Catalog: t.Name.Catalog, Namespace: slices.Clone(t.Name.Namespace), Name: t.Name.Name,
		TableUUID: t.UUID, Format: t.Format, FormatVersion: t.FormatVersion, Branch: w.Plan.Branch, Operation: string(w.Plan.Operation),
		Prefix: w.Plan.Prefix, SchemaJSON: string(t.SchemaJSON), SpecJSON: string(t.SpecJSON), SortOrderJSON: string(t.SortOrderJSON),
		Properties: t.Properties, TargetFileSize: ext.TargetFileSize,
		Limits: openwrite.Limits{ManifestBytes: s.cfg.MaxManifest, ManifestFiles: s.cfg.MaxFiles, Manifests: s.cfg.MaxManifests, Files: s.cfg.MaxFiles, Bytes: s.cfg.MaxBytes},
		Begun:  time.UnixMilli(w.Job.GetSubmittedUnixMs()).UTC(), Expires: state.Expires, MaxExpires: state.MaxExpires,
		// Engines send a context to their workers once. Whether the write is still open is
		// looked up at each call.
		WorkerToken: signToken(s.signer, state.WriteID, state.MaxExpires), WorkerTokenExpires: state.MaxExpires, DryRun: w.DryRun,
	}
	if c.Namespace == nil {
		c.Namespace = []string{}
	}
	describe := describeIceberg
	if t.Format == "delta" {
		describe = describeDelta
	}
	schema, err := describe(t, c)
	if err != nil {
		return nil, err
	}
	c.Manifests = map[string][]byte{}
	for _, e := range []struct {
		schema *arrow.Schema
		put    func([]byte)
	}{
		{schema, func(b []byte) { c.ArrowSchema = b }},
		{wire.ManifestSchema(), func(b []byte) { c.Manifests[openwrite.ManifestComplete] = b }},
		{openwrite.PathsSchema(), func(b []byte) { c.Manifests[openwrite.ManifestPaths] = b }},
	} {
		raw, err := wire.EncodeIPC(e.schema)
		if err != nil {
			return nil, err
		}
		e.put(raw)
	}
	return c, s.reach(ctx, w, ext, c, expired)
}

// reach says how the prefix is written to.
func (s *Service) reach(ctx context.Context, w Write, ext plan.WriteContext, c *openwrite.Context, expired string) error {
	if !objstore.Remote(c.Prefix) {
		c.Storage.Kind = openwrite.StoreLocal
		return nil
	}
	server := objstore.FromStorage(ext.Storage)
	c.Storage = openwrite.Storage{Kind: openwrite.StoreS3, Endpoint: server.Endpoint, Region: server.Region, PathStyle: server.PathStyle}
	if len(w.Warnings) > 0 {
		c.Storage.Warning = w.Warnings[0]
	}
	if ext.Storage[objstore.KeyCredential] == "" {
		return nil
	}
	k, err := s.host.Keys(ctx, c.WriteID, expired)
	if err != nil {
		return err
	}
	c.Storage.Credentials = &openwrite.Credentials{AccessKeyID: k.AccessKeyID, SecretAccessKey: k.SecretAccessKey, SessionToken: k.SessionToken}
	if !k.Expires.IsZero() {
		c.Storage.Credentials.Expires = new(k.Expires.UTC())
	}
	return nil
}

// describeIceberg fills in what the schema and the spec of an Iceberg table say.
func describeIceberg(t plan.Pinned, c *openwrite.Context) (*arrow.Schema, error) {
	schema, err := iceberg.ParseSchema(t.SchemaJSON)
	if err != nil {
		return nil, err
	}
	spec, err := iceberg.ParseSpec(t.SpecJSON, schema)
	if err != nil {
		return nil, err
	}
	c.SchemaID, c.SpecID, c.Partition = schema.ID, spec.ID(), []openwrite.PartitionField{}
	for i := range spec.NumFields() {
		f := spec.Field(i)
		p := openwrite.PartitionField{FieldID: f.FieldID, Name: f.Name, SourceID: f.SourceID(), Transform: f.Transform.String()}
		if name, ok := schema.FindColumnName(p.SourceID); ok {
			p.Source = name
		}
		if source, ok := schema.FindTypeByID(p.SourceID); ok {
			p.Type = f.Transform.ResultType(source).String()
		}
		c.Partition = append(c.Partition, p)
	}
	for _, f := range schema.Fields() {
		c.FileColumns = append(c.FileColumns, f.Name)
	}
	return iceberg.ArrowSchema(schema)
}

// describeDelta fills in what the schema and the partition columns of a Delta table
// say.
func describeDelta(t plan.Pinned, c *openwrite.Context) (*arrow.Schema, error) {
	schema, err := delta.ParseSchema(string(t.SchemaJSON))
	if err != nil {
		return nil, err
	}
	columns, err := delta.ParsePartition(t.SpecJSON)
	if err != nil {
		return nil, err
	}
	c.SchemaID, c.SpecID, c.Partition = delta.SchemaID(string(t.SchemaJSON)), delta.PartitionID(columns), []openwrite.PartitionField{}
	for i, name := range columns {
		p := openwrite.PartitionField{FieldID: i + 1, Name: name, Source: name, Transform: "identity"}
		if f := schema.Column(name); f != nil {
			if raw, err := json.Marshal(f.Type); err == nil {
				p.Type = strings.Trim(string(raw), `"`)
			}
		}
		c.Partition = append(c.Partition, p)
	}
	out, err := delta.ArrowSchema(schema)
	if err != nil {
		return nil, err
	}
	for _, f := range out.Fields() {
		if !slices.Contains(columns, f.Name) {
			c.FileColumns = append(c.FileColumns, f.Name)
		}
	}
	return out, nil
}
