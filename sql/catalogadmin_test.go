package sql_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/sql"
)

// adminCatalogs notes what is asked of it.
type adminCatalogs struct {
	*fakeCatalogs
	created []sql.CatalogDef
	dropped []string
	report  sql.CatalogReport
	unfit   error
}

func (c *adminCatalogs) CatalogInfos(context.Context) ([]sql.CatalogInfo, error) {
	return []sql.CatalogInfo{{Name: "lake", Type: "rest", URI: "http://x", Origin: "statement"}}, nil
}

func (c *adminCatalogs) CreateCatalog(_ context.Context, def sql.CatalogDef) error {
	c.created = append(c.created, def)
	return nil
}

func (c *adminCatalogs) DropCatalog(_ context.Context, name string, _ bool) error {
	c.dropped = append(c.dropped, name)
	return nil
}

func (c *adminCatalogs) CheckCatalog(context.Context, string) (sql.CatalogReport, error) {
	return c.report, nil
}

func (c *adminCatalogs) Writable(context.Context, string) error { return c.unfit }

func TestCatalogStatements(t *testing.T) {
	c := &adminCatalogs{fakeCatalogs: newCatalogs(t)}
	an := &sql.Analyzer{Catalogs: c, Parser: parser}
	do := func(text string, session plan.Session) (sql.Result, error) {
		t.Helper()
		return an.RunCatalogStatement(t.Context(), parseOne(t, text), session)
	}
	_, err := do(`create catalog if not exists "my lake" using iceberg with (type = 'rest', "uri" = 'http://x', s3.endpoint = 'e', 's3.secret-access-key' = 'CANARY', token_file = '/t')`, plan.Session{})
	if err != nil {
		t.Fatal(err)
	}
	want := sql.CatalogDef{Name: "my lake", IfNotExists: true, Properties: map[string]string{
		"type": "rest", "uri": "http://x", "s3.endpoint": "e", "s3.secret-access-key": "CANARY", "token_file": "/t",
	}}
	if diff := cmp.Diff([]sql.CatalogDef{want}, c.created); diff != "" {
		t.Error(diff)
	}
	if text := fmt.Sprintf("%v %+v %#v", want, want, want); strings.Contains(text, "CANARY") {
		t.Errorf("a secret is printed: %s", text)
	}
	r, err := do("DROP CATALOG IF EXISTS lake", plan.Session{Catalog: "lake", Namespace: []string{"air"}})
	if err != nil || len(c.dropped) != 1 || r.Session.Catalog != "" {
		t.Errorf("dropped %v, session %+v, %v", c.dropped, r.Session, err)
	}
	r, err = do("SHOW CATALOGS", plan.Session{})
	if err != nil || fmt.Sprint(r.Rows) != "[[lake rest http://x statement not checked ]]" {
		t.Errorf("shown %v, %v", r.Rows, err)
	}
	for mode, want := range map[sql.CatalogMode]string{sql.ModeSeat: "ok seat", sql.ModeNoSeat: "warning no-seat", sql.ModeUnfit: "failed unfit", "": "failed undecided"} {
		c.report = sql.CatalogReport{Mode: mode, Why: "so", Probes: []sql.CatalogProbe{{"p", "t", "a", sql.ProbeOK}}}
		r, err = do("CHECK CATALOG lake", plan.Session{})
		if err != nil || fmt.Sprint(r.Rows) != "[[p ok a t] [mode "+want+" so]]" {
			t.Errorf("checked %v, %v", r.Rows, err)
		}
	}
	c.unfit = &commit.Error{Code: commit.CodeCatalogUnfit, Cause: errors.New("unfit")}
	_, err = an.Bind(t.Context(), parseOne(t, "INSERT INTO lake.air.flights VALUES (1)"), plan.Session{}, sql.BindOptions{JobID: "j"})
	if commit.CodeOf(err) != commit.CodeCatalogUnfit {
		t.Errorf("an INSERT into an unfit catalog: %v", err)
	}
	fixed := &sql.Analyzer{Catalogs: c.fakeCatalogs, Parser: parser}
	for _, text := range []string{"CREATE CATALOG x WITH (type = 'rest')", "DROP CATALOG x", "CHECK CATALOG x"} {
		if _, err := fixed.RunCatalogStatement(t.Context(), parseOne(t, text), plan.Session{}); commit.CodeOf(err) != commit.CodeSQLUnsupportedStatement {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// An error about a statement that may hold a secret repeats nothing of it.
func TestErrorsRepeatNoSecret(t *testing.T) {
	for _, text := range []string{
		"CREATE CATALOG x WITH (token = 'CANARY' 'CANARY')",
		"CREATE CATALOG x WITH (token = 'CANARY'",
		"CREATE CATALOG x WITH ('CANARY')",
		"CREATE CATALOG x WITH (token = 'CANARY', token = 'CANARY')",
		"CREATE CATALOG x 'CANARY'",
		"CREATE CATALOG x WITH (token = 'CANARY) SELECT",
		"SELEC 1; CREATE /* a */ CATALOG x WITH (token = 'CANARY')",
		"CREATE OR REPLACE CATALOG x WITH (token = 'CANARY')",
		"EXPLAIN CREATE CATALOG x WITH (token = 'CANARY')",
		"CREATE CATALOG x WITH (token = e'CANARY\\x41')",
		"CREATE CATALOG x WITH (token = CANARY)",
		`CREATE CATALOG x WITH (token = "CANARY")`,
		"CREATE CATALOG x WITH (token = 0xCANARY)",
		"CREATE SOURCE x WITH (password = 'CANARY'",
		"CREATE /* prod */ SOURCE x WITH (password = 'CANARY'",
		"CREATE/* a /* b */ c */SOURCE x WITH (password = 'CANARY'",
		"CREATE -- a word, and another one\nSOURCE x WITH (password = 'CANARY'",
		"CREATE OR -- a word\nREPLACE /* more */ SOURCE x WITH (password = 'CANARY')",
		"Create\r\n\tOr Replace\n\nsOuRcE \"a \"\"b\"\"\" With (Password = 'CANARY'",
		"CREATE IF NOT EXISTS SOURCE x WITH (password = 'CANARY')",
		"CREATE \"SOURCE\" x WITH (password = 'CANARY')",
		"CREATE /* one two three four SOURCE x WITH (password = 'CANARY')",
		"CREATE /* one */ /* two */ -- three\n -- four five six\n SOURCE x WITH (password = CANARY)",
	} {
		_, err := sql.Parse(text)
		e, ok := errors.AsType[*commit.Error](err)
		if !ok {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if all := e.Error() + e.Hint + e.Tried; strings.Contains(all, "CANARY") {
			t.Errorf("%s: the error repeats it: %s", text, all)
		}
	}
}
