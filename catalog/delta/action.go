package delta

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/firn-project/firn/format/delta"
)

// Action is one entry of the log. One field is set; none for an action that this
// version doesn't know, which readers pass over.
type Action struct {
	CommitInfo         *CommitInfo         `json:"commitInfo,omitempty"`
	Protocol           *delta.Protocol     `json:"protocol,omitempty"`
	Metadata           *Metadata           `json:"metaData,omitempty"`
	Txn                *Txn                `json:"txn,omitempty"`
	DomainMetadata     *DomainMetadata     `json:"domainMetadata,omitempty"`
	Remove             *Remove             `json:"remove,omitempty"`
	Add                *Add                `json:"add,omitempty"`
	Sidecar            *Sidecar            `json:"sidecar,omitempty"`
	CheckpointMetadata *CheckpointMetadata `json:"checkpointMetadata,omitempty"`
}

// Metadata is a table's metaData action. It is replaced as a whole.
type Metadata struct {
	// ID is the table's identity.
	ID               string            `json:"id"`
	Name             *string           `json:"name,omitempty"`
	Description      *string           `json:"description,omitempty"`
	Format           Format            `json:"format"`
	SchemaString     string            `json:"schemaString"`
	PartitionColumns []string          `json:"partitionColumns"`
	CreatedTime      *int64            `json:"createdTime,omitempty"` // ms
	Configuration    map[string]string `json:"configuration"`
}

// Format is the format of a table's data files.
type Format struct {
	Provider string            `json:"provider"`
	Options  map[string]string `json:"options"`
}

// Add makes a file part of the table.
type Add struct {
	// Path is a URI, relative to the table's root or absolute.
	Path string `json:"path"`
	// PartitionValues are by physical name; nil and "" are null.
	PartitionValues map[string]*string `json:"partitionValues"`
	Size            int64              `json:"size"`
	// ModificationTime is in milliseconds.
	ModificationTime int64 `json:"modificationTime"`
	// DataChange is false when the rows were in the table before, elsewhere.
	DataChange bool `json:"dataChange"`
	// Stats is JSON, see format/delta.ParseStats; empty when there are none.
	Stats                   string                `json:"stats,omitempty"`
	Tags                    map[string]*string    `json:"tags,omitempty"`
	DeletionVector          *delta.DeletionVector `json:"deletionVector,omitempty"`
	BaseRowID               *int64                `json:"baseRowId,omitempty"`
	DefaultRowCommitVersion *int64                `json:"defaultRowCommitVersion,omitempty"`
	ClusteringProvider      *string               `json:"clusteringProvider,omitempty"`
}

// Remove takes a file out of the table.
type Remove struct {
	Path string `json:"path"`
	// DeletionTimestamp is in milliseconds.
	DeletionTimestamp       *int64                `json:"deletionTimestamp,omitempty"`
	DataChange              bool                  `json:"dataChange"`
	ExtendedFileMetadata    *bool                 `json:"extendedFileMetadata,omitempty"`
	PartitionValues         map[string]*string    `json:"partitionValues,omitempty"`
	Size                    *int64                `json:"size,omitempty"`
	Stats                   string                `json:"stats,omitempty"`
	Tags                    map[string]*string    `json:"tags,omitempty"`
	DeletionVector          *delta.DeletionVector `json:"deletionVector,omitempty"`
	BaseRowID               *int64                `json:"baseRowId,omitempty"`
	DefaultRowCommitVersion *int64                `json:"defaultRowCommitVersion,omitempty"`
}

// Txn is the newest version that an application has committed.
type Txn struct {
	AppID       string `json:"appId"`
	Version     int64  `json:"version"`
	LastUpdated *int64 `json:"lastUpdated,omitempty"` // ms
}

// DomainMetadata is the configuration that a feature, or a user, keeps under a
// name of its own.
type DomainMetadata struct {
	Domain        string `json:"domain"`
	Configuration string `json:"configuration"`
	Removed       bool   `json:"removed"`
}

// Sidecar names a file with a part of a checkpoint's file actions.
type Sidecar struct {
	Path             string             `json:"path"`
	SizeInBytes      int64              `json:"sizeInBytes"`
	ModificationTime int64              `json:"modificationTime"`
	Tags             map[string]*string `json:"tags,omitempty"`
}

// CheckpointMetadata is in checkpoints of version 2.
type CheckpointMetadata struct {
	Version int64              `json:"version"`
	Tags    map[string]*string `json:"tags,omitempty"`
}

// CommitInfo says where a commit comes from. Only Firn's own is trusted to mean
// anything, and only as far as txnId and tokens go.
type CommitInfo struct {
	Timestamp           int64             `json:"timestamp"` // ms
	InCommitTimestamp   *int64            `json:"inCommitTimestamp,omitempty"`
	Operation           string            `json:"operation,omitempty"`
	OperationParameters map[string]string `json:"operationParameters,omitempty"`
	ReadVersion         *int64            `json:"readVersion,omitempty"`
	IsolationLevel      string            `json:"isolationLevel,omitempty"`
	IsBlindAppend       *bool             `json:"isBlindAppend,omitempty"`
	OperationMetrics    map[string]string `json:"operationMetrics,omitempty"`
	EngineInfo          string            `json:"engineInfo,omitempty"`
	TxnID               string            `json:"txnId,omitempty"`
	// Tokens, Units and Ledger are Firn's: the commit units of this commit
	// (token=digest, …), their numbers (rows/files/bytes/job, …), and the tokens
	// of the commits before it.
	Tokens string `json:"firn.tokens,omitempty"`
	Units  string `json:"firn.units,omitempty"`
	Ledger string `json:"firn.ledger,omitempty"`
}

// Time is when the commit says that it was made, in ms.
func (c *CommitInfo) Time() int64 {
	if c.InCommitTimestamp != nil {
		return *c.InCommitTimestamp
	}
	return c.Timestamp
}

// UnmarshalJSON takes the fields that have the type expected and passes over all
// others: commitInfo is free, and other writers do as they like.
func (c *CommitInfo) UnmarshalJSON(b []byte) error {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return errors.New("commitInfo isn't an object")
	}
	*c = CommitInfo{}
	for name, into := range map[string]any{
		"timestamp": &c.Timestamp, "inCommitTimestamp": &c.InCommitTimestamp, "operation": &c.Operation,
		"readVersion": &c.ReadVersion, "isolationLevel": &c.IsolationLevel,
		"isBlindAppend": &c.IsBlindAppend, "engineInfo": &c.EngineInfo, "txnId": &c.TxnID, "firn.tokens": &c.Tokens,
		"firn.units": &c.Units, "firn.ledger": &c.Ledger,
	} {
		if v, ok := raw[name]; ok {
			_ = json.Unmarshal(v, into) // of another type: as if absent
		}
	}
	c.OperationParameters = texts(raw["operationParameters"])
	c.OperationMetrics = texts(raw["operationMetrics"])
	return nil
}

// texts reads an object of texts; values of other types become their JSON.
func texts(raw json.RawMessage) map[string]string {
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil || len(m) == 0 {
		return nil
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		var s string
		if json.Unmarshal(v, &s) != nil {
			s = string(v)
		}
		out[k] = s
	}
	return out
}

// decodeAction reads one line of a commit or of a JSON checkpoint.
func decodeAction(line []byte) (Action, error) {
	var a Action
	if err := json.Unmarshal(line, &a); err != nil {
		return a, err
	}
	return a, a.check()
}

// check refuses what no table can have.
func (a *Action) check() error {
	switch {
	case a.Add != nil:
		return checkFile("add", a.Add.Path, a.Add.Size, a.Add.DeletionVector)
	case a.Remove != nil:
		size := int64(0)
		if a.Remove.Size != nil {
			size = *a.Remove.Size
		}
		return checkFile("remove", a.Remove.Path, size, a.Remove.DeletionVector)
	case a.Txn != nil && a.Txn.AppID == "":
		return errors.New("txn: no appId")
	case a.DomainMetadata != nil && a.DomainMetadata.Domain == "":
		return errors.New("domainMetadata: no domain")
	case a.Sidecar != nil && a.Sidecar.Path == "":
		return errors.New("sidecar: no path")
	}
	return nil
}

func checkFile(what, path string, size int64, dv *delta.DeletionVector) error {
	switch {
	case path == "":
		return fmt.Errorf("%s: no path", what)
	case size < 0:
		return fmt.Errorf("%s of %.200q: %d bytes", what, path, size)
	case dv != nil:
		if err := dv.Check(); err != nil {
			return fmt.Errorf("%s of %.200q: %w", what, path, err)
		}
	}
	return nil
}

// appendAction writes one line, with its end.
func appendAction(b *bytes.Buffer, a *Action) error {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	return e.Encode(a)
}

// fileKey is what makes two file actions speak of one file.
type fileKey struct{ path, vector string }

func (a *Add) key() fileKey { return fileKey{delta.CanonicalPath(a.Path), a.DeletionVector.ID()} }

func (r *Remove) key() fileKey { return fileKey{delta.CanonicalPath(r.Path), r.DeletionVector.ID()} }

// removal is the action that takes the file out again: it repeats path and
// deletion vector as they stand.
func (a *Add) removal(now int64, dataChange bool) *Remove {
	extended, size := true, a.Size
	return &Remove{
		Path: a.Path, DeletionTimestamp: &now, DataChange: dataChange, ExtendedFileMetadata: &extended,
		PartitionValues: a.PartitionValues, Size: &size, Tags: a.Tags, DeletionVector: a.DeletionVector,
		BaseRowID: a.BaseRowID, DefaultRowCommitVersion: a.DefaultRowCommitVersion,
	}
}
