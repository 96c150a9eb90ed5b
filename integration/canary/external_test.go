//go:build integration

package canary_test

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	_ "github.com/duckdb/duckdb-go/v2"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/internal/objstore"
)

// external writes a table as another engine would, and keeps all that it was told. The
// keys that it gets are good for its own prefix alone.
func (l *lab) external(table, query string) {
	l.t.Helper()
	ctx := l.t.Context()
	c, err := client.Dial(ctx, l.sched.Address)
	if err != nil {
		l.t.Fatal(err)
	}
	defer c.Close()
	tell := func(v any, err error) {
		l.t.Helper()
		raw, merr := json.Marshal(v)
		if err = errors.Join(err, merr); err != nil {
			l.t.Fatalf("%s: %v", table, err)
		}
		l.told.Write(raw)
	}
	w, err := c.BeginWrite(ctx, table, client.WriteOptions{Engine: "canary"})
	tell(nil, err)
	tell(w.Renew(ctx, ""))
	wc, _ := w.Context()
	worker, err := client.Dial(ctx, l.sched.Address, client.WithToken(wc.WorkerToken))
	if err != nil {
		l.t.Fatal(err)
	}
	defer worker.Close()

	st := wc.Storage
	if st.Kind != "s3" || st.AccessKeyID == "" || st.SessionToken == "" || st.Expires.IsZero() || st.Warning != "" {
		l.t.Fatalf("%s: keys of the write: %s, until %s, %q", table, st.AccessKeyID, st.Expires, st.Warning)
	}
	store := objstore.New(objstore.Config{
		Endpoint: st.Endpoint, Region: st.Region, PathStyle: st.PathStyle,
		AccessKeyID: st.AccessKeyID, SecretAccessKey: st.SecretAccessKey, SessionToken: st.SessionToken,
	})
	uri := wc.Prefix + "a-0.parquet"
	raw := l.parquet(wc, query)
	if err := objstore.WriteFile(ctx, store, uri, raw); err != nil {
		l.t.Fatal(err)
	}
	for _, elsewhere := range []string{"s3://lake/a-0.parquet", strings.TrimSuffix(wc.Prefix, "/") + "x/a-0.parquet", "s3://lake/warehouse/air/metadata/a-0.parquet"} {
		if err := objstore.WriteFile(ctx, store, elsewhere, raw); err == nil {
			l.t.Errorf("%s: the keys of a write write %s", table, elsewhere)
		}
	}
	origin := "X"
	h, err := worker.JoinWrite(wc).HandInFiles(ctx, "a", []client.WrittenFile{{Path: uri, Size: int64(len(raw)), Rows: 10, Partition: l.partition(wc, origin)}})
	tell(h, err)
	_, err = worker.JoinWrite(wc).HandInFiles(ctx, "b", []client.WrittenFile{{Path: "s3://lake/landing/b-0.parquet", Size: -1, Rows: -1}})
	if err == nil {
		l.t.Errorf("%s: a file elsewhere was taken", table)
	} else {
		l.told.WriteString(err.Error())
	}
	r, err := w.Commit(ctx, []client.Handle{h})
	tell(r, err)
	tell(w.Status(ctx))
	if r.Rows != 10 {
		l.t.Errorf("%s: %+v", table, r)
	}
}

// partition are the values of a Delta table's partition columns, which its files don't
// hold.
func (l *lab) partition(wc client.WriteContext, value string) map[string]*string {
	if wc.Format != "delta" {
		return nil
	}
	out := map[string]*string{}
	for _, f := range wc.Partition {
		out[f.Name] = &value
	}
	return out
}

// parquet is a file with the columns that the write's files hold.
func (l *lab) parquet(wc client.WriteContext, query string) []byte {
	l.t.Helper()
	var ids []string
	for _, f := range wc.Schema.Fields() {
		if id, ok := f.Metadata.GetValue("PARQUET:field_id"); ok {
			ids = append(ids, f.Name+": "+id)
		}
	}
	options := "FORMAT parquet"
	if len(ids) > 0 {
		options += ", FIELD_IDS {" + strings.Join(ids, ", ") + "}"
	}
	path := filepath.Join(l.t.TempDir(), "a.parquet")
	db, err := sql.Open("duckdb", "")
	if err != nil {
		l.t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(l.t.Context(), fmt.Sprintf("COPY (%s) TO '%s' (%s)", query, path, options)); err != nil {
		l.t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		l.t.Fatal(err)
	}
	return raw
}
