package catalog

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	icerest "github.com/apache/iceberg-go/catalog/rest"

	"github.com/firn-project/firn/catalog/catalogtest"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
	"github.com/firn-project/firn/sql"
)

func openREST1(tb testing.TB, s *restServer, props map[string]string) *Set {
	tb.Helper()
	return openWith(tb, Config{Name: "lake", Type: "rest", URI: s.URL, Warehouse: "wh", Properties: props})
}

// openWith opens one catalog until the test's end.
func openWith(tb testing.TB, c Config) *Set {
	tb.Helper()
	set, err := Open(context.Background(), []Config{c})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := set.Close(); err != nil {
			tb.Error(err)
		}
	})
	return set
}

func restHarness(tb testing.TB) (*restServer, *harness) {
	tb.Helper()
	s := newRESTServer(tb)
	lib, err := icerest.NewCatalog(context.Background(), "lake", s.URL)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { lib.Close() })
	return s, newHarness(tb, openREST1(tb, s, nil), lib)
}

func TestRESTConformance(t *testing.T) {
	committest.Run(t, func(t *testing.T) committest.Harness {
		t.Helper()
		_, h := restHarness(t)
		return h
	})
}

// Trap B6: the library reports half of these as raw errors although the commit
// landed.
func TestTrapB6_RESTAnswers(t *testing.T) {
	catalogtest.Answers(t, func(t *testing.T) (*catalogtest.Harness, catalogtest.Server) {
		t.Helper()
		s, h := restHarness(t)
		return h.Harness, s
	})
}

// A connection that the server closed while it was idle must not make net/http
// send the commit again.
func TestOneCopyOverADeadConnection(t *testing.T) {
	s, h := restHarness(t)
	tbl := h.Open(t)
	for i := range 3 {
		m, err := tbl.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r, err := tbl.Build(t.Context(), m, []commit.Unit{h.Unit(t, fmt.Sprint(i), 1, 1)})
		if err != nil {
			t.Fatal(err)
		}
		before := s.Sent()
		s.Inject(catalogtest.Fault{Applied: true, Cut: catalogtest.Before})
		if a := tbl.Send(t.Context(), r); a.Class != commit.AnswerAmbiguous {
			t.Errorf("%+v", a)
		}
		if n := s.Sent() - before; n != 1 {
			t.Errorf("%d copies arrived", n)
		}
		s.CloseClientConnections()
	}
	if n := h.Rows(t); n != 3 {
		t.Errorf("%d rows, want 3", n)
	}
}

// What a request asserts: UUID, ref, schema and spec.
func TestRESTRequirements(t *testing.T) {
	s, h := restHarness(t)
	tbl := h.Open(t)
	m, err := tbl.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := tbl.Build(t.Context(), m, []commit.Unit{h.Unit(t, "k", 1, 1)})
	if err != nil {
		t.Fatal(err)
	}
	tbl.Send(t.Context(), r)
	body := s.bodies[len(s.bodies)-1]
	for _, part := range []string{
		`"type":"assert-table-uuid","uuid":"` + m.UUID() + `"`,
		`"type":"assert-ref-snapshot-id","ref":"main","snapshot-id":` + m.Head("main"),
		`"type":"assert-current-schema-id","current-schema-id":0`,
		`"type":"assert-default-spec-id","default-spec-id":0`,
		`"action":"add-snapshot"`, `"action":"set-snapshot-ref"`,
	} {
		if !strings.Contains(body, part) {
			t.Errorf("the request lacks %s:\n%s", part, body)
		}
	}
}

// A new table below version 3 has a first snapshot, so that the first request on
// it has a parent and with it a seat.
func TestRESTFirstSnapshot(t *testing.T) {
	_, h := restHarness(t)
	p := h.Pin(t)
	if p.SnapshotID == "" {
		t.Error("the new table has no snapshot")
	}
	info, err := h.set.Describe(t.Context(), airT)
	if err != nil || info.Rows != 0 || info.Snapshots != 1 {
		t.Errorf("%+v, %v", info, err)
	}
	v3 := airT
	v3.Name = "v3"
	def := sql.TableDef{Name: v3, SchemaJSON: catalogtest.Schema(), Properties: map[string]string{"format-version": "3"}}
	if err := h.set.CreateTable(t.Context(), def); err != nil {
		t.Fatal(err)
	}
	if p, err = h.set.Pin(t.Context(), v3); err != nil || p.SnapshotID != "" || p.FormatVersion != 3 {
		t.Errorf("version 3: %+v, %v", p, err)
	}
}

// A catalog may name the metadata files of a new table as it did those of the old
// one in its place. What was read of the old one isn't the new one's, whoever reads.
func TestRESTMetadataNamesComeAgain(t *testing.T) {
	s := newRESTServer(t)
	s.numbered = true
	lib, err := icerest.NewCatalog(context.Background(), "lake", s.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lib.Close() })
	h := newHarness(t, openREST1(t, s, nil), lib)
	old := h.Pin(t)
	tbl := h.Open(t)
	u := h.Unit(t, "k", 1, 1)
	if _, err := tbl.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.Drop(t)
	h.Recreate(t)
	p := h.Pin(t)
	if p.MetadataLocation != old.MetadataLocation || p.UUID == old.UUID {
		t.Errorf("the table %s at %s, then %s at %s", old.UUID, old.MetadataLocation, p.UUID, p.MetadataLocation)
	}
	m, err := tbl.Read(t.Context())
	if err != nil || m.UUID() != p.UUID {
		t.Errorf("read %v, %v", m, err)
	}
	if _, err := tbl.Build(t.Context(), m, []commit.Unit{u}); commit.CodeOf(err) != commit.CodeTableChanged {
		t.Errorf("build: %v", err)
	}
	_, err = h.set.Scan(t.Context(), old, "", nil)
	wantCode(t, "scan of the old table", err, commit.CodeTableChanged)
}

func TestRESTNames(t *testing.T) {
	s, h := restHarness(t)
	ctx := t.Context()
	if !slices.Contains(s.query, "warehouse=wh") {
		t.Errorf("asked for the configuration with %q", s.query)
	}
	wantCode(t, "namespace again", h.set.CreateNamespace(ctx, "lake", []string{"air"}, nil, false), commit.CodeNamespaceExists)
	wantCode(t, "table again", h.set.CreateTable(ctx, sql.TableDef{Name: airT, SchemaJSON: catalogtest.Schema()}), commit.CodeTableExists)
	wantCode(t, "not empty", h.set.DropNamespace(ctx, "lake", []string{"air"}, false), commit.CodeNamespaceNotEmpty)
	deep := commit.TableName{Catalog: "lake", Namespace: []string{"a.b", "ü c"}, Name: "t %2F?"}
	if err := h.set.CreateNamespace(ctx, "lake", deep.Namespace, nil, false); err != nil {
		t.Fatal(err)
	}
	if err := h.set.CreateTable(ctx, sql.TableDef{Name: deep, SchemaJSON: catalogtest.Schema()}); err != nil {
		t.Fatal(err)
	}
	p, err := h.set.Pin(ctx, deep)
	if err != nil {
		t.Fatal(err)
	}
	all, err := h.set.Tables(ctx, "lake", deep.Namespace)
	if err != nil || len(all) != 1 || all[0].String() != deep.String() {
		t.Errorf("tables %v, %v", all, err)
	}
	copyOf := deep
	copyOf.Name = "copy"
	if err := h.set.RegisterTable(ctx, copyOf, p.MetadataLocation); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "register again", h.set.RegisterTable(ctx, copyOf, p.MetadataLocation), commit.CodeTableExists)
	if err := h.set.DropTable(ctx, deep, false); err != nil {
		t.Fatal(err)
	}
	_, err = h.set.Pin(ctx, deep)
	wantCode(t, "dropped", err, commit.CodeTableNotFound)
	wantCode(t, "dropped twice", h.set.DropTable(ctx, deep, false), commit.CodeTableNotFound)
}

// Reads are repeated when the server is busy; a commit never is.
func TestRESTReadsAreRepeated(t *testing.T) {
	s, h := restHarness(t)
	busy := 2
	next := s.Config.Handler
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && busy > 0 {
			busy--
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		next.ServeHTTP(w, r)
	})
	if _, err := h.set.Pin(t.Context(), airT); err != nil {
		t.Errorf("a read gave up: %v", err)
	}
	if busy != 0 {
		t.Errorf("%d busy answers left", busy)
	}
}

// The client's credentials are exchanged for a token, which is renewed when the
// server doesn't take it any more. Nothing of either leaves the catalog.
func TestRESTCredentials(t *testing.T) {
	s := newRESTServer(t)
	s.tokens = map[string]bool{}
	set := openREST1(t, s, map[string]string{"credential": "me:SECRET", "s3.region": "eu"})
	if err := set.CreateNamespace(t.Context(), "lake", airT.Namespace, nil, false); err != nil {
		t.Fatal(err)
	}
	if err := set.CreateTable(t.Context(), sql.TableDef{Name: airT, SchemaJSON: catalogtest.Schema()}); err != nil {
		t.Fatal(err)
	}
	if s.grants != 1 {
		t.Errorf("%d tokens were got, want 1", s.grants)
	}
	p, err := set.Pin(t.Context(), airT)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("%+v %s", p, p.SchemaJSON)
	for _, secret := range []string{"SECRET", "TABLETOKEN"} {
		if strings.Contains(text, secret) {
			t.Errorf("the pinned table holds %s", secret)
		}
	}
	raw, err := os.ReadFile(strings.TrimPrefix(p.MetadataLocation, "file://"))
	if err != nil || strings.Contains(string(raw), "SECRET") {
		t.Errorf("the metadata file holds the secret (%v)", err)
	}
	s.tokens = map[string]bool{}
	if _, err := set.Pin(t.Context(), airT); err != nil {
		t.Errorf("after the token expired: %v", err)
	}
	_, err = Open(t.Context(), []Config{{Name: "x", Type: "rest", URI: s.URL, Properties: map[string]string{"credential": "me:WRONG"}}})
	if commit.CodeOf(err) != commit.CodeCatalogPermission || strings.Contains(fmt.Sprint(err), "WRONG") {
		t.Errorf("wrong credentials: %v", err)
	}
}

func TestRESTUnreachable(t *testing.T) {
	s := newRESTServer(t)
	set := openREST1(t, s, nil)
	s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := set.Pin(ctx, airT); err == nil {
		t.Error("a closed server answered")
	}
	for _, uri := range []string{"ftp://x", "http://", "::"} {
		_, err := Open(t.Context(), []Config{{Name: "x", Type: "rest", URI: uri}})
		wantCode(t, uri, err, commit.CodeCatalogConfig)
	}
}

// C4: a commit has an Idempotency-Key only where the server says that it takes
// one. It is the request's own: the same bytes have the same key, what is built
// again has a new one, and the unit's token is never it.
func TestC4_IdempotencyKeys(t *testing.T) {
	for _, lifetime := range []string{"", "PT30M"} {
		s := newRESTServer(t)
		s.lifetime = lifetime
		lib, err := icerest.NewCatalog(context.Background(), "lake", s.URL)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { lib.Close() })
		h := newHarness(t, openREST1(t, s, nil), lib)
		tbl := h.Open(t)
		u := h.Unit(t, "k", 1, 1)
		build := func() commit.Request {
			m, err := tbl.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			r, err := tbl.Build(t.Context(), m, []commit.Unit{u})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		a, b := build(), build()
		s.keys = nil
		for _, r := range []commit.Request{a, a, b} {
			tbl.Send(t.Context(), r)
		}
		want := []string{"", "", ""}
		if lifetime != "" {
			want = []string{a.ID, a.ID, b.ID}
		}
		if !slices.Equal(s.keys, want) || a.ID == b.ID || a.ID == u.Token.String() {
			t.Errorf("lifetime %q: keys %q, want %q", lifetime, s.keys, want)
		}
		if _, ok := commit.KeyTime(a.ID); !ok {
			t.Errorf("%s is no UUIDv7", a.ID)
		}
	}
}
