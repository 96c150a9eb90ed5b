package iceberg

import (
	"context"

	"github.com/apache/iceberg-go/table"

	"github.com/firn-project/firn/commit"
)

// Attachment is a table's place in its catalog.
type Attachment interface {
	// Load reads the table's entry afresh. The error wraps
	// commit.ErrTableNotFound when the catalog has no such table.
	Load(ctx context.Context) (Loaded, error)
	// Swaps says that the catalog holds a pointer and nothing else: the driver
	// writes the metadata file and Send swaps the pointer.
	Swaps() bool
	// Send sends one copy of a change, once.
	Send(ctx context.Context, c Change) commit.Answer
}

// Loaded is a table's entry in its catalog.
type Loaded struct {
	// Pointer is the location of the current metadata file.
	Pointer string
	// Metadata is set when the catalog gives it with the pointer; otherwise
	// the driver reads the file.
	Metadata table.Metadata
}

// Change is one commit request.
type Change struct {
	// From and To are the pointers to swap, for catalogs that do so.
	From, To string
	// Requirements and Updates are what other catalogs get.
	Requirements []table.Requirement
	Updates      []table.Update
	// RequestID is the UUIDv7 of the request.
	RequestID string
}
