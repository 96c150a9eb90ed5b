package delta

import (
	"errors"
	"fmt"
	"slices"
)

// Protocol is what a table asks of those who read and write it.
type Protocol struct {
	MinReaderVersion int      `json:"minReaderVersion"`
	MinWriterVersion int      `json:"minWriterVersion"`
	ReaderFeatures   []string `json:"readerFeatures,omitzero"`
	WriterFeatures   []string `json:"writerFeatures,omitzero"`
}

// Versions from which on a protocol lists features.
const (
	readerWithFeatures = 3
	writerWithFeatures = 7
)

// Check says whether the protocol is one that a table may have.
func (p Protocol) Check() error {
	switch {
	case p.MinReaderVersion < 1 || p.MinWriterVersion < 1:
		return fmt.Errorf("protocol (%d, %d): versions begin at 1", p.MinReaderVersion, p.MinWriterVersion)
	case p.MinReaderVersion > readerWithFeatures || p.MinWriterVersion > writerWithFeatures:
		return fmt.Errorf("protocol (%d, %d): versions up to (%d, %d) are known", p.MinReaderVersion, p.MinWriterVersion, readerWithFeatures, writerWithFeatures)
	case p.MinReaderVersion == readerWithFeatures && p.MinWriterVersion != writerWithFeatures:
		return fmt.Errorf("protocol (%d, %d): reader version 3 needs writer version 7", p.MinReaderVersion, p.MinWriterVersion)
	case (p.ReaderFeatures != nil) != (p.MinReaderVersion == readerWithFeatures):
		return fmt.Errorf("protocol (%d, %d): reader features are listed with reader version 3, and only then", p.MinReaderVersion, p.MinWriterVersion)
	case (p.WriterFeatures != nil) != (p.MinWriterVersion == writerWithFeatures):
		return fmt.Errorf("protocol (%d, %d): writer features are listed with writer version 7, and only then", p.MinReaderVersion, p.MinWriterVersion)
	}
	for _, f := range p.ReaderFeatures {
		if !slices.Contains(p.WriterFeatures, f) {
			return fmt.Errorf("protocol: feature %.80q is listed for readers and not for writers", f)
		}
	}
	return nil
}

// Supports says whether a feature is listed, or implied by the versions.
func (p Protocol) Supports(name string) bool {
	if p.MinWriterVersion == writerWithFeatures {
		if slices.Contains(p.WriterFeatures, name) {
			return true
		}
	}
	f := featureByName(name)
	return f != nil && f.legacyWriter > 0 && p.MinWriterVersion < writerWithFeatures && p.MinWriterVersion >= f.legacyWriter
}

// Definition is what a table is: protocol and metadata.
type Definition struct {
	Protocol   Protocol
	Schema     *Struct
	Partition  []string
	Properties map[string]string
}

// Operation is what somebody wants to do with a table.
type Operation string

// Operations.
const (
	// OperationList reads the log: files, not rows.
	OperationList Operation = "list"
	// OperationScan reads rows.
	OperationScan Operation = "read"
	// OperationAppend adds files that have a value in every column.
	OperationAppend Operation = "append to"
	// OperationOverwrite adds files and removes whole files with their rows.
	OperationOverwrite Operation = "overwrite"
	// OperationRewrite replaces files by others with the same rows.
	OperationRewrite Operation = "rewrite files of"
)

func (o Operation) writes() bool { return o != OperationList && o != OperationScan }

// UnsupportedError is why an operation is refused: a feature that the table uses
// and that Firn doesn't do right, or doesn't know.
type UnsupportedError struct {
	// Feature is the feature's name in the protocol, or another short name.
	Feature   string
	Operation Operation
	Why       string
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("can't %s the table because of %s: %s", e.Operation, e.Feature, e.Why)
}

// CheckOperation says whether Firn does an operation right on a table. It is
// asked when a job is planned, before data is written, and again before each
// commit, as the winner of a race may have changed the table. The error is an
// *UnsupportedError, or says what is wrong with the table.
func CheckOperation(d Definition, op Operation) error {
	if err := d.Protocol.Check(); err != nil {
		return &UnsupportedError{Feature: "its protocol", Operation: op, Why: err.Error()}
	}
	named := d.Protocol.ReaderFeatures
	if op.writes() {
		named = d.Protocol.WriterFeatures
	}
	for _, n := range named {
		if featureByName(n) == nil {
			return &UnsupportedError{Feature: fmt.Sprintf("%.80q", n), Operation: op, Why: "this version doesn't know the feature"}
		}
	}
	if d.Schema == nil {
		return errors.New("the table has no schema")
	}
	for i := range features {
		f := &features[i]
		if !f.always && !d.Protocol.Supports(f.name) {
			continue
		}
		if why := f.refuses(d, op); why != "" {
			return &UnsupportedError{Feature: f.name, Operation: op, Why: why}
		}
	}
	return nil
}
