package catalog

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

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

// sqlTimeout bounds the opening of a catalog's database and one commit to it. A
// commit that isn't answered by then is ambiguous.
const sqlTimeout = time.Minute

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
	q := `SELECT metadata_location FROM iceberg_tables WHERE catalog_name = ?1 AND table_namespace = ?2 AND table_name = ?3`
	if a.catalog.typed {
		q += ` AND (iceberg_type = 'TABLE' OR iceberg_type IS NULL)`
	}
	var location sql.NullString
	err = a.catalog.db.QueryRowContext(ctx, a.catalog.dialect.bind(q), a.catalog.name, ns, a.name.Name).Scan(&location)
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
// but not on a connection that the caller holds. Until it runs nothing is sent,
// so that whatever fails before it asks for another try.
func (a *sqlAttachment) Send(ctx context.Context, c iceberg.Change) commit.Answer {
	ctx, cancel := context.WithTimeout(ctx, sqlTimeout)
	defer cancel()
	ns, err := a.catalog.namespaceKey(ctx, a.name.Namespace)
	if err != nil {
		return a.answer(err, commit.AnswerWait)
	}
	conn, err := a.catalog.db.Conn(ctx)
	if err != nil {
		return a.answer(err, commit.AnswerWait)
	}
	defer func() { _ = conn.Close() }()
	r, err := conn.ExecContext(ctx, a.catalog.dialect.bind(`UPDATE iceberg_tables SET metadata_location = ?1, previous_metadata_location = ?2
		WHERE catalog_name = ?3 AND table_namespace = ?4 AND table_name = ?5 AND metadata_location = ?2`),
		c.To, c.From, a.catalog.name, ns, a.name.Name)
	if err != nil {
		return a.answer(err, commit.AnswerAmbiguous)
	}
	n, err := r.RowsAffected()
	if err != nil {
		return a.answer(err, commit.AnswerAmbiguous)
	}
	if n == 0 {
		return commit.Answer{Class: commit.AnswerConflict, Err: fmt.Errorf("table %s: the catalog's pointer is not %s any more", a.name, c.From)}
	}
	return commit.Answer{Class: commit.AnswerOK}
}

// answer sorts an error. A locked row or file means that nothing was done and
// that waiting helps; what isn't known is as the caller says, unless time ran out.
func (a *sqlAttachment) answer(err error, other commit.AnswerClass) commit.Answer {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		other = commit.AnswerAmbiguous
	}
	out := commit.Answer{Class: other, Err: a.catalog.wrap("commit to", a.name.String(), err)}
	switch a.catalog.dialect.fault(err) {
	case faultBusy:
		out.Class = commit.AnswerWait
	case faultPermission:
		out.Class = commit.AnswerPermission
	case faultExists, faultOther:
	}
	return out
}
