package catalog

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/firn-project/firn/catalog/catalogtest"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/sql"
)

// A table in an object store: metadata goes there by the catalog's own settings,
// and the pinned table carries what executors need and nothing else.
func TestTableOnS3(t *testing.T) {
	backend := s3mem.New()
	if err := backend.CreateBucket("lake"); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
	defer srv.Close()
	set, err := Open(context.Background(), []Config{{
		Name: "lake", Type: "sql", URI: t.TempDir() + "/c.db", Warehouse: "s3://lake/wh/",
		Properties: map[string]string{"s3.endpoint": srv.URL, "s3.access-key-id": "id", "s3.secret-access-key": "key", "token": "CANARY"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	defer srv.CloseClientConnections()
	ctx := t.Context()
	if err := set.CreateNamespace(ctx, "lake", airT.Namespace, nil, false); err != nil {
		t.Fatal(err)
	}
	if err := set.CreateTable(ctx, sql.TableDef{Name: airT, SchemaJSON: catalogtest.Schema()}); err != nil {
		t.Fatal(err)
	}
	p, err := set.Pin(ctx, airT)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(p.DataLocation, "s3://lake/wh/air/t-") || !strings.HasSuffix(p.DataLocation, "/data") {
		t.Errorf("data location %s", p.DataLocation)
	}
	if len(p.Storage) != 3 || p.Storage["s3.endpoint"] != srv.URL || p.Storage["token"] != "" {
		t.Errorf("storage %v", p.Storage)
	}
	tbl, err := set.OpenTable(ctx, airT)
	if err != nil {
		t.Fatal(err)
	}
	m, err := tbl.Read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	u := commit.Unit{
		Token: commit.NewToken(commit.TokenInput{Key: "k", TableUUID: p.UUID}), Table: airT, TableUUID: p.UUID,
		Files: commit.PackFiles(commit.File{Path: p.DataLocation + "/j-1/x.parquet", Format: "PARQUET", Rows: 5, Size: 50}), Rows: 5, Bytes: 50,
	}
	r, err := tbl.Build(ctx, m, []commit.Unit{u})
	if err != nil {
		t.Fatal(err)
	}
	if a := tbl.Send(ctx, r); a.Class != commit.AnswerOK {
		t.Fatalf("%+v", a)
	}
	if p, err = set.Pin(ctx, airT); err != nil {
		t.Fatal(err)
	}
	src, err := set.Scan(ctx, p, "", nil)
	if err != nil || len(src.Files) != 1 || src.Files[0].Path != u.Files.Path(0) || src.Files[0].Rows != 5 || src.Storage["s3.endpoint"] != srv.URL {
		t.Errorf("scan %+v, %v", src, err)
	}
}
