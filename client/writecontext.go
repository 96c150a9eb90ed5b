package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire/openwrite"
)

// WriteContext is what it takes to write files for one write. It holds nothing of
// the catalog, and all of it may go to workers: it is marshalled as JSON, and gives
// the same context there.
type WriteContext struct {
	// WriteID names the write, and is the id of its job. Key is its idempotency key.
	WriteID, Key string
	// Table is the table's full name.
	Table, TableUUID string
	// Format is "iceberg" or "delta".
	Format        string
	FormatVersion int
	// Prefix is a URI that ends in a slash. Every file lies under it, in a file whose
	// name begins with its attempt's id and a dash.
	Prefix string
	// Schema is that of the table's rows; fields have their ids where the format has
	// them. FileColumns are the columns that files hold.
	Schema      *arrow.Schema
	FileColumns []string
	// SchemaJSON, SpecJSON and SortOrderJSON are in the format's own serialisation.
	SchemaJSON, SpecJSON, SortOrderJSON string
	// SchemaID and SpecID go into complete manifests.
	SchemaID, SpecID int
	// Partition are the fields of the partition spec, in order.
	Partition      []WritePartitionField
	Properties     map[string]string
	TargetFileSize int64
	Storage        WriteStorage
	// ManifestBytes and ManifestFiles bound one manifest; Files bounds the files of
	// the write, and Manifests its attempts.
	ManifestBytes, ManifestFiles, Files, Manifests int64
	// Expires is when the write expires unless it is renewed, MaxExpires the latest
	// to which it can be.
	Begun, Expires, MaxExpires time.Time
	// WorkerToken lets its bearer hand manifests of this write in and renew it, and
	// nothing else: a worker dials with it.
	WorkerToken        string
	WorkerTokenExpires time.Time
	DryRun             bool

	raw []byte
}

// WritePartitionField is one field of a partition spec. SourceID is 0 in a Delta
// table.
type WritePartitionField struct {
	FieldID         int
	Name            string
	SourceID        int
	Source          string
	Transform, Type string
}

// WriteStorage is how the prefix is written to.
type WriteStorage struct {
	// Kind is "file", a directory that the worker must see as the scheduler does, or
	// "s3".
	Kind             string
	Endpoint, Region string
	PathStyle        bool
	// AccessKeyID and the rest are good for the prefix alone; empty where none are
	// needed. Expires is zero for keys that don't end.
	AccessKeyID, SecretAccessKey, SessionToken string
	Expires                                    time.Time
	// Warning is there when the keys are the scheduler's own.
	Warning string
}

// MarshalJSON implements json.Marshaler.
func (w WriteContext) MarshalJSON() ([]byte, error) {
	if w.raw == nil {
		return nil, errors.New("it isn't the context of a write")
	}
	return w.raw, nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (w *WriteContext) UnmarshalJSON(raw []byte) error {
	var c openwrite.Context
	if err := json.Unmarshal(raw, &c); err != nil {
		return badAnswer("read the context of a write", err)
	}
	out, err := contextOf(&c)
	if err != nil {
		return err
	}
	*w = *out
	return nil
}

// contextOf reads what a scheduler gave.
func contextOf(c *openwrite.Context) (*WriteContext, error) {
	const op = "read the context of a write"
	switch {
	case c.WriteID == "" || len(c.WriteID) > maxID:
		return nil, badAnswer(op, errors.New("it has no id"))
	case !strings.HasSuffix(c.Prefix, "/"):
		return nil, badAnswer(op, fmt.Errorf("its prefix %.200q doesn't end in a slash", c.Prefix))
	}
	schema, batches, err := readStream(c.ArrowSchema)
	if err != nil {
		return nil, badAnswer(op, err)
	}
	for _, b := range batches {
		b.Release()
	}
	if schema.NumFields() == 0 {
		return nil, badAnswer(op, errors.New("its schema has no fields"))
	}
	raw, err := json.Marshal(c)
	if err != nil {
		return nil, badAnswer(op, err)
	}
	w := &WriteContext{
		WriteID: c.WriteID, Key: c.Key, Table: c.Table, TableUUID: c.TableUUID, Format: c.Format, FormatVersion: c.FormatVersion,
		Prefix: c.Prefix, Schema: schema, FileColumns: c.FileColumns, SchemaJSON: c.SchemaJSON, SpecJSON: c.SpecJSON,
		SortOrderJSON: c.SortOrderJSON, SchemaID: c.SchemaID, SpecID: c.SpecID, Properties: c.Properties, TargetFileSize: c.TargetFileSize,
		ManifestBytes: c.Limits.ManifestBytes, ManifestFiles: c.Limits.ManifestFiles, Files: c.Limits.Files, Manifests: c.Limits.Manifests,
		Begun: c.Begun, Expires: c.Expires, MaxExpires: c.MaxExpires, WorkerToken: c.WorkerToken, WorkerTokenExpires: c.WorkerTokenExpires,
		DryRun: c.DryRun, raw: raw,
		Storage: WriteStorage{
			Kind: c.Storage.Kind, Endpoint: c.Storage.Endpoint, Region: c.Storage.Region, PathStyle: c.Storage.PathStyle, Warning: c.Storage.Warning,
		},
	}
	for _, p := range c.Partition {
		w.Partition = append(w.Partition, WritePartitionField(p))
	}
	if k := c.Storage.Credentials; k != nil {
		w.Storage.AccessKeyID, w.Storage.SecretAccessKey, w.Storage.SessionToken = k.AccessKeyID, k.SecretAccessKey, k.SessionToken
		if k.Expires != nil {
			w.Storage.Expires = *k.Expires
		}
	}
	return w, nil
}

// maxID bounds an id in an answer.
const maxID = 1 << 10

func badAnswer(op string, err error) error {
	return &commit.Error{
		Code: commit.CodeProtocol, Op: op, Cause: err,
		Hint: "Read the scheduler's log; `firn version` shows which version this is.",
	}
}
