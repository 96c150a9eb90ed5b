package writes

import (
	"context"
	"errors"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/internal/wire/openwrite"
	"github.com/firn-project/firn/plan"
)

// Deriver describes data files of which a worker only said where they are.
type Deriver interface {
	// For binds the table that a manifest's files are for. derive reads the footer of
	// a file and gives the row that a complete manifest would have of it: counts,
	// bounds, partition values, split offsets, the target's schema and spec ids, and no
	// sort order. The path is known to lie under the write's prefix and to be named
	// after the attempt. It's called for several files at the same time.
	//
	// A file that isn't what the table or the row wants is a *commit.Error with
	// CodeManifestRefused (Refuse makes it) that names the path and the rule. Any
	// other error is the store's and may pass.
	For(target plan.Pinned) (derive func(ctx context.Context, store objstore.Store, attempt string, row openwrite.PathsRow) (commit.File, error), err error)
}

// Refuse is the error of a manifest, or of a file that it names, which breaks a
// rule. file is empty when the manifest itself does.
func Refuse(writeID, attempt, file, rule, why string) error {
	op, object := "take the manifest of attempt "+attempt+" of write", writeID
	if file != "" {
		op, object = "take file", file
	}
	return &commit.Error{
		Code: commit.CodeManifestRefused, Op: op, Object: object, Cause: errors.New(why + " (rule: " + rule + ")"),
		Tried: "nothing was handed in",
		Hint:  "docs/reference/write-protocol.md has the rules. Hand a manifest that is right in under the same attempt id; what has to be written anew gets a new attempt id and new names.",
	}
}
