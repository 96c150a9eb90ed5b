package restcatalog

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"

	ice "github.com/apache/iceberg-go"
	icecatalog "github.com/apache/iceberg-go/catalog"
	icesql "github.com/apache/iceberg-go/catalog/sql"
	"github.com/apache/iceberg-go/table"
	_ "modernc.org/sqlite" // the driver of the catalog's database
)

// Server is an Iceberg REST catalog over iceberg-go's SQL catalog. Requests that
// change something are carried out one at a time.
type Server struct {
	// URL is where the catalog answers.
	URL string

	http *httptest.Server
	db   *sql.DB
	cat  *icesql.Catalog
	mu   sync.Mutex
	lies Lies
}

// NewServer makes a catalog whose database and warehouse are in dir. Close ends
// it.
func NewServer(dir string) (*Server, error) {
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: filepath.Join(dir, "catalog.db")}).String()+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)")
	if err != nil {
		return nil, fmt.Errorf("open the catalog's database: %w", err)
	}
	cat, err := icesql.NewCatalog("rest", db, icesql.SQLite, ice.Properties{"warehouse": "file://" + filepath.Join(dir, "warehouse")})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the catalog: %w", err), db.Close())
	}
	s := &Server{db: db, cat: cat}
	mux := http.NewServeMux()
	for pattern, f := range map[string]func(*http.Request) (any, error){
		"GET /v1/config":                                  s.config,
		"GET /v1/namespaces":                              s.listNamespaces,
		"POST /v1/namespaces":                             s.createNamespace,
		"GET /v1/namespaces/{ns}":                         s.loadNamespace,
		"DELETE /v1/namespaces/{ns}":                      s.dropNamespace,
		"GET /v1/namespaces/{ns}/tables":                  s.listTables,
		"POST /v1/namespaces/{ns}/tables":                 s.createTable,
		"GET /v1/namespaces/{ns}/tables/{table}":          s.loadTable,
		"POST /v1/namespaces/{ns}/tables/{table}":         s.commit,
		"DELETE /v1/namespaces/{ns}/tables/{table}":       s.dropTable,
		"POST /v1/namespaces/{ns}/tables/{table}/metrics": func(*http.Request) (any, error) { return nil, nil },
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, f) })
	}
	s.http = httptest.NewServer(mux)
	s.URL = s.http.URL
	return s, nil
}

// Close ends the server. Its files stay.
func (s *Server) Close() error {
	s.http.Close()
	return s.db.Close()
}

// Table loads a table from the catalog, past server and proxy.
func (s *Server) Table(ctx context.Context, ident ...string) (*table.Table, error) {
	return s.cat.LoadTable(ctx, ident)
}

// answer runs one operation and writes its result, or its error with the status
// that Iceberg's REST specification has for it.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, f func(*http.Request) (any, error)) {
	if r.Method != http.MethodGet {
		s.mu.Lock()
		defer s.mu.Unlock()
	}
	v, err := f(r)
	status, kind := http.StatusOK, ""
	switch {
	case err == nil && v == nil:
		w.WriteHeader(http.StatusNoContent)
		return
	case err == nil:
	case errors.Is(err, icecatalog.ErrNoSuchTable):
		status, kind = http.StatusNotFound, "NoSuchTableException"
	case errors.Is(err, icecatalog.ErrNoSuchNamespace):
		status, kind = http.StatusNotFound, "NoSuchNamespaceException"
	case errors.Is(err, icecatalog.ErrTableAlreadyExists), errors.Is(err, icecatalog.ErrNamespaceAlreadyExists):
		status, kind = http.StatusConflict, "AlreadyExistsException"
	case errors.Is(err, icecatalog.ErrNamespaceNotEmpty):
		status, kind = http.StatusConflict, "NamespaceNotEmptyException"
	case errors.Is(err, table.ErrCommitFailed), errors.Is(err, errRequirement):
		status, kind = http.StatusConflict, "CommitFailedException"
		if r.Method == http.MethodPost && s.lies.ConflictStatus != 0 {
			status, kind = s.lies.ConflictStatus, "MadeUp"
		}
	default:
		status, kind = http.StatusBadRequest, "BadRequestException"
	}
	if err != nil {
		v = map[string]any{"error": map[string]any{"message": err.Error(), "type": kind, "code": status}}
	}
	raw, err := json.Marshal(v)
	if err != nil {
		status, raw = http.StatusInternalServerError, []byte(`{"error":{"message":"the reply can't be encoded","type":"InternalServerError","code":500}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(raw)
}

// errRequirement: a requirement of a commit doesn't hold.
var errRequirement = errors.New("requirement failed")

// namespace is the path's: its levels are parted by the unit separator.
func namespace(r *http.Request) []string { return strings.Split(r.PathValue("ns"), "\x1f") }

func ident(r *http.Request) []string { return append(namespace(r), r.PathValue("table")) }

func (*Server) config(*http.Request) (any, error) {
	return map[string]any{"defaults": map[string]string{}, "overrides": map[string]string{}}, nil
}

func (s *Server) listNamespaces(r *http.Request) (any, error) {
	var parent []string
	if p := r.URL.Query().Get("parent"); p != "" {
		parent = strings.Split(p, "\x1f")
	}
	all, err := s.cat.ListNamespaces(r.Context(), parent)
	if all == nil {
		all = []table.Identifier{}
	}
	return map[string]any{"namespaces": all}, err
}

func (s *Server) createNamespace(r *http.Request) (any, error) {
	var in struct {
		Namespace  []string       `json:"namespace"`
		Properties ice.Properties `json:"properties"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return nil, err
	}
	return in, s.cat.CreateNamespace(r.Context(), in.Namespace, in.Properties)
}

func (s *Server) loadNamespace(r *http.Request) (any, error) {
	props, err := s.cat.LoadNamespaceProperties(r.Context(), namespace(r))
	return map[string]any{"namespace": namespace(r), "properties": props}, err
}

func (s *Server) dropNamespace(r *http.Request) (any, error) {
	return nil, s.cat.DropNamespace(r.Context(), namespace(r))
}

func (s *Server) listTables(r *http.Request) (any, error) {
	out := []map[string]any{}
	for id, err := range s.cat.ListTables(r.Context(), namespace(r)) {
		if err != nil {
			return nil, err
		}
		out = append(out, map[string]any{"namespace": namespace(r), "name": id[len(id)-1]})
	}
	return map[string]any{"identifiers": out}, nil
}

func (s *Server) createTable(r *http.Request) (any, error) {
	var in struct {
		Name       string             `json:"name"`
		Schema     *ice.Schema        `json:"schema"`
		Spec       *ice.PartitionSpec `json:"partition-spec"`
		Properties ice.Properties     `json:"properties"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return nil, err
	}
	if in.Schema == nil {
		return nil, errors.New("no schema")
	}
	opts := []icecatalog.CreateTableOpt{icecatalog.WithProperties(in.Properties)}
	if in.Spec != nil {
		opts = append(opts, icecatalog.WithPartitionSpec(in.Spec))
	}
	t, err := s.cat.CreateTable(r.Context(), append(namespace(r), in.Name), in.Schema, opts...)
	return shown(t), err
}

// shown is the REST form of a table.
func shown(t *table.Table) any {
	if t == nil {
		return nil
	}
	return map[string]any{"metadata-location": t.MetadataLocation(), "metadata": t.Metadata(), "config": map[string]string{}}
}

func (s *Server) loadTable(r *http.Request) (any, error) {
	t, err := s.cat.LoadTable(r.Context(), ident(r))
	if err != nil {
		return nil, err
	}
	return s.told(shown(t))
}

func (s *Server) dropTable(r *http.Request) (any, error) {
	return nil, s.cat.DropTable(r.Context(), ident(r))
}

func (s *Server) commit(r *http.Request) (any, error) {
	var in struct {
		Requirements table.Requirements `json:"requirements"`
		Updates      table.Updates      `json:"updates"`
	}
	t, err := s.cat.LoadTable(r.Context(), ident(r))
	if err != nil {
		return nil, err
	}
	raw, err := s.heard(r.Body, t.Metadata())
	if err == nil {
		err = json.Unmarshal(raw, &in)
	}
	if err != nil {
		return nil, err
	}
	for _, q := range in.Requirements {
		if err := q.Validate(t.Metadata()); err != nil {
			return nil, fmt.Errorf("%w: %w", errRequirement, err)
		}
	}
	meta, location, err := s.cat.CommitTable(r.Context(), ident(r), in.Requirements, in.Updates)
	if err != nil {
		return nil, err
	}
	return map[string]any{"metadata-location": location, "metadata": meta}, nil
}
