package catalog

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	sqlitelib "modernc.org/sqlite/lib"

	"github.com/firn-project/firn/catalog/iceberg"
	"github.com/firn-project/firn/commit"
)

// encodedPrefix starts the keys of namespaces with dots in their parts.
const encodedPrefix = "__iceberg_namespace_v1__:"

func encodedNamespace(key string) ([]string, bool) {
	raw, ok := strings.CutPrefix(key, encodedPrefix)
	if !ok {
		return nil, false
	}
	var parts []string
	if err := json.Unmarshal([]byte(raw), &parts); err != nil {
		return nil, false
	}
	return parts, true
}

// sqlAttachment is a table's row.
type sqlAttachment struct {
	catalog *sqlCatalog
	name    commit.TableName
}

// Swaps implements iceberg.Attachment.
func (*sqlAttachment) Swaps() bool { return true }

// Load implements iceberg.Attachment.
func (a *sqlAttachment) Load(ctx context.Context) (iceberg.Loaded, error) {
	ns, err := a.catalog.namespaceKey(ctx, a.name.Namespace)
	if err != nil {
		return iceberg.Loaded{}, a.catalog.wrap("open table", a.name.String(), err)
	}
	q := `SELECT metadata_location FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?`
	if a.catalog.typed {
		q += ` AND (iceberg_type = 'TABLE' OR iceberg_type IS NULL)`
	}
	var location sql.NullString
	err = a.catalog.db.QueryRowContext(ctx, q, a.catalog.name, ns, a.name.Name).Scan(&location)
	if errors.Is(err, sql.ErrNoRows) {
		return iceberg.Loaded{}, iceberg.TableNotFound(a.name, "")
	}
	if err != nil {
		return iceberg.Loaded{}, a.catalog.wrap("open table", a.name.String(), err)
	}
	if location.String == "" {
		return iceberg.Loaded{}, newError(commit.CodeMetadataInvalid, "open table", a.name.String(), errors.New("the catalog has no metadata location for it"))
	}
	return iceberg.Loaded{Pointer: location.String}, nil
}

// Send implements iceberg.Attachment. It swaps the pointer if it still is the
// one that the request was built from. The statement runs on a connection of its
// own: database/sql repeats a statement on another connection when one was lost,
// but not on a connection that the caller holds.
func (a *sqlAttachment) Send(ctx context.Context, c iceberg.Change) commit.Answer {
	ns, err := a.catalog.namespaceKey(ctx, a.name.Namespace)
	if err != nil {
		return a.answer(err)
	}
	conn, err := a.catalog.db.Conn(ctx)
	if err != nil {
		return a.answer(err)
	}
	defer func() { _ = conn.Close() }()
	r, err := conn.ExecContext(ctx, `UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = ?
		WHERE catalog_name = ? AND table_namespace = ? AND table_name = ? AND metadata_location = ?`,
		c.To, c.From, a.catalog.name, ns, a.name.Name, c.From)
	if err != nil {
		return a.answer(err)
	}
	n, err := r.RowsAffected()
	if err != nil {
		return a.answer(err)
	}
	if n == 0 {
		return commit.Answer{Class: commit.AnswerConflict, Err: fmt.Errorf("table %s: the catalog's pointer is not %s any more", a.name, c.From)}
	}
	return commit.Answer{Class: commit.AnswerOK}
}

// answer sorts an error. A locked file means that nothing was done and that
// waiting helps; all that isn't known to have done nothing is ambiguous.
func (a *sqlAttachment) answer(err error) commit.Answer {
	out := commit.Answer{Class: commit.AnswerAmbiguous, Err: a.catalog.wrap("commit to", a.name.String(), err)}
	switch sqliteCode(err) {
	case sqlitelib.SQLITE_BUSY, sqlitelib.SQLITE_LOCKED:
		out.Class = commit.AnswerWait
	case sqlitelib.SQLITE_READONLY, sqlitelib.SQLITE_PERM, sqlitelib.SQLITE_AUTH:
		out.Class = commit.AnswerPermission
	}
	return out
}
