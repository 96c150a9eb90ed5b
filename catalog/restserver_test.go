package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	ice "github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"
	"github.com/google/uuid"

	"github.com/firn-project/firn/catalog/catalogtest"
	"github.com/firn-project/firn/catalog/iceberg"
	"github.com/firn-project/firn/internal/objstore"
)

// restServer is a REST catalog in this process. It judges requirements and
// applies updates with the library's own parsers, as Java's servers do.
type restServer struct {
	*httptest.Server
	t   testing.TB
	dir string

	mu         sync.Mutex
	namespaces map[string]map[string]string
	tables     map[string]*serverTable
	// fault is that of each commit request.
	fault   *catalogtest.Fault
	commits int
	loads   int
	// bodies are the commit requests, secrets the credentials that are valid.
	bodies []string
	tokens map[string]bool
	grants int
	query  []string
	// vend is given with each table, delegation what it was asked with.
	vend       []vendedCredentials
	delegation string
	// page is how many names a page of a listing has, 0 for all; pages counts.
	page, pages int
	// numbered: metadata files are counted from v1.metadata.json, and a table lies
	// where the last one of its name lay, as in SeaweedFS.
	numbered bool
	// lifetime is that of idempotency keys, empty when it takes none; keys are what
	// commits brought.
	lifetime string
	keys     []string
}

type serverTable struct {
	meta     table.Metadata
	location string
}

func newRESTServer(tb testing.TB) *restServer {
	tb.Helper()
	s := &restServer{t: tb, dir: tb.TempDir(), namespaces: map[string]map[string]string{}, tables: map[string]*serverTable{}}
	mux := http.NewServeMux()
	for pattern, f := range map[string]http.HandlerFunc{
		"GET /v1/config":                                  s.config,
		"POST /v1/oauth/tokens":                           s.grant,
		"GET /v1/p/namespaces":                            s.listNamespaces,
		"POST /v1/p/namespaces":                           s.createNamespace,
		"GET /v1/p/namespaces/{ns}":                       s.loadNamespace,
		"DELETE /v1/p/namespaces/{ns}":                    s.dropNamespace,
		"GET /v1/p/namespaces/{ns}/tables":                s.listTables,
		"POST /v1/p/namespaces/{ns}/tables":               s.createTable,
		"POST /v1/p/namespaces/{ns}/register":             s.register,
		"GET /v1/p/namespaces/{ns}/tables/{table}":        s.loadTable,
		"POST /v1/p/namespaces/{ns}/tables/{table}":       s.commit,
		"DELETE /v1/p/namespaces/{ns}/tables/{table}":     s.dropTable,
		"POST /v1/p/namespaces/{ns}/tables/{table}/other": http.NotFound,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.tokens != nil && r.URL.Path != "/v1/oauth/tokens" && !s.tokens[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")] {
				s.fail(w, http.StatusUnauthorized, "NotAuthorizedException", "no valid token")
				return
			}
			f(w, r)
		})
	}
	s.Server = httptest.NewServer(mux)
	tb.Cleanup(s.Close)
	return s
}

// Sent implements catalogtest.Server.
func (s *restServer) Sent() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commits
}

// Inject implements catalogtest.Server.
func (s *restServer) Inject(f catalogtest.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = &f
}

func (s *restServer) reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		s.t.Error(err)
	}
}

func (s *restServer) fail(w http.ResponseWriter, status int, kind, message string) {
	w.WriteHeader(status)
	s.reply(w, map[string]any{"error": map[string]any{"message": message, "type": kind, "code": status}})
}

func (s *restServer) config(w http.ResponseWriter, r *http.Request) {
	s.query = append(s.query, r.URL.RawQuery)
	reply := map[string]any{"defaults": map[string]string{"prefix": "default"}, "overrides": map[string]string{"prefix": "p"}}
	if s.lifetime != "" {
		reply["idempotency-key-lifetime"] = s.lifetime
	}
	s.reply(w, reply)
}

func (s *restServer) grant(w http.ResponseWriter, r *http.Request) {
	if r.PostFormValue("client_id") != "me" || r.PostFormValue("client_secret") != "SECRET" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	s.grants++
	token := uuid.NewString()
	s.tokens = map[string]bool{token: true}
	s.reply(w, map[string]any{"access_token": token, "token_type": "bearer", "expires_in": 3600})
}

func ns(r *http.Request) string { return r.PathValue("ns") }

func (s *restServer) hasNamespace(w http.ResponseWriter, r *http.Request) bool {
	if _, ok := s.namespaces[ns(r)]; !ok {
		s.fail(w, http.StatusNotFound, "NoSuchNamespaceException", "no namespace "+ns(r))
		return false
	}
	return true
}

func (s *restServer) listNamespaces(w http.ResponseWriter, r *http.Request) {
	out := [][]string{}
	for _, n := range slices.Sorted(maps.Keys(s.namespaces)) {
		out = append(out, strings.Split(n, "\x1f"))
	}
	out, next := paged(s, r, out)
	s.reply(w, map[string]any{"namespaces": out, "next-page-token": next})
}

// paged cuts a page out of a listing.
func paged[T any](s *restServer, r *http.Request, all []T) ([]T, any) {
	if s.page == 0 {
		return all, nil
	}
	s.pages++
	from, _ := strconv.Atoi(r.URL.Query().Get("pageToken"))
	to := min(len(all), from+s.page)
	if to == len(all) {
		return all[from:to], nil
	}
	return all[from:to], strconv.Itoa(to)
}

func (s *restServer) createNamespace(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Namespace  []string
		Properties map[string]string
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		s.t.Error(err)
	}
	key := strings.Join(in.Namespace, "\x1f")
	if _, ok := s.namespaces[key]; ok {
		s.fail(w, http.StatusConflict, "AlreadyExistsException", "namespace exists")
		return
	}
	s.namespaces[key] = in.Properties
	s.reply(w, in)
}

func (s *restServer) loadNamespace(w http.ResponseWriter, r *http.Request) {
	if s.hasNamespace(w, r) {
		s.reply(w, map[string]any{"namespace": strings.Split(ns(r), "\x1f"), "properties": s.namespaces[ns(r)]})
	}
}

func (s *restServer) dropNamespace(w http.ResponseWriter, r *http.Request) {
	if !s.hasNamespace(w, r) {
		return
	}
	for k := range s.tables {
		if strings.HasPrefix(k, ns(r)+"\x00") {
			s.fail(w, http.StatusConflict, "NamespaceNotEmptyException", "not empty")
			return
		}
	}
	delete(s.namespaces, ns(r))
	w.WriteHeader(http.StatusNoContent)
}

func (s *restServer) listTables(w http.ResponseWriter, r *http.Request) {
	if !s.hasNamespace(w, r) {
		return
	}
	out := []map[string]any{}
	for _, k := range slices.Sorted(maps.Keys(s.tables)) {
		if n, name, _ := strings.Cut(k, "\x00"); n == ns(r) {
			out = append(out, map[string]any{"namespace": strings.Split(n, "\x1f"), "name": name})
		}
	}
	out, next := paged(s, r, out)
	s.reply(w, map[string]any{"identifiers": out, "next-page-token": next})
}

func (s *restServer) publish(key string, meta table.Metadata) {
	location := iceberg.FirstMetadataPath(meta)
	if s.numbered {
		location = fmt.Sprintf("%s/metadata/v%d.metadata.json", meta.Location(), len(meta.Snapshots())+1)
		if err := os.Remove(strings.TrimPrefix(location, "file://")); err != nil && !os.IsNotExist(err) {
			s.t.Error(err)
		}
	}
	if err := iceberg.WriteMetadata(context.Background(), objstore.New(objstore.Config{}), location, meta); err != nil {
		s.t.Error(err)
	}
	s.tables[key] = &serverTable{meta, location}
}

func (s *restServer) createTable(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Name       string
		Schema     *ice.Schema
		Spec       *ice.PartitionSpec `json:"partition-spec"`
		Properties ice.Properties
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		s.t.Error(err)
	}
	key := ns(r) + "\x00" + in.Name
	switch {
	case !s.hasNamespace(w, r):
		return
	case s.tables[key] != nil:
		s.fail(w, http.StatusConflict, "AlreadyExistsException", "table exists")
		return
	}
	dir := uuid.NewString()
	if s.numbered {
		dir = in.Name
	}
	meta, err := table.NewMetadata(in.Schema, in.Spec, table.UnsortedSortOrder, "file://"+filepath.Join(s.dir, dir), in.Properties)
	if err != nil {
		s.fail(w, http.StatusBadRequest, "BadRequestException", err.Error())
		return
	}
	s.publish(key, meta)
	s.replyTable(w, key)
}

func (s *restServer) register(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Name     string
		Location string `json:"metadata-location"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		s.t.Error(err)
	}
	raw, err := os.ReadFile(strings.TrimPrefix(in.Location, "file://"))
	if err != nil {
		s.t.Error(err)
	}
	meta, err := table.ParseMetadataBytes(raw)
	if err != nil {
		s.t.Error(err)
	}
	key := ns(r) + "\x00" + in.Name
	if s.tables[key] != nil {
		s.fail(w, http.StatusConflict, "AlreadyExistsException", "table exists")
		return
	}
	s.tables[key] = &serverTable{meta, in.Location}
	s.replyTable(w, key)
}

func (s *restServer) replyTable(w http.ResponseWriter, key string) {
	t := s.tables[key]
	s.reply(w, map[string]any{"metadata-location": t.location, "metadata": t.meta, "config": map[string]string{"token": "TABLETOKEN"}, "storage-credentials": s.vend})
}

func (s *restServer) tableKey(w http.ResponseWriter, r *http.Request) (string, bool) {
	key := ns(r) + "\x00" + r.PathValue("table")
	if s.tables[key] == nil {
		s.fail(w, http.StatusNotFound, "NoSuchTableException", "no table "+r.PathValue("table"))
		return "", false
	}
	return key, true
}

func (s *restServer) loadTable(w http.ResponseWriter, r *http.Request) {
	s.loads++
	s.delegation = r.Header.Get("X-Iceberg-Access-Delegation")
	if key, ok := s.tableKey(w, r); ok {
		s.replyTable(w, key)
	}
}

func (s *restServer) dropTable(w http.ResponseWriter, r *http.Request) {
	if key, ok := s.tableKey(w, r); ok {
		delete(s.tables, key)
		w.WriteHeader(http.StatusNoContent)
	}
}

func (s *restServer) commit(w http.ResponseWriter, r *http.Request) {
	s.commits++
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Error(err)
	}
	s.bodies = append(s.bodies, string(body))
	s.keys = append(s.keys, r.Header.Get("Idempotency-Key"))
	f := &catalogtest.Fault{Applied: true}
	if s.fault != nil {
		f = s.fault
	}
	rec := httptest.NewRecorder()
	if f.Applied {
		s.apply(rec, r, body)
	}
	switch {
	case f.Cut == catalogtest.Before:
		panic(http.ErrAbortHandler)
	case f.Cut == catalogtest.Middle:
		w.Header().Set("Content-Length", "100000")
		_, _ = w.Write(rec.Body.Bytes()[:20])
		panic(http.ErrAbortHandler)
	case f.Status >= 300 && f.Status < 400:
		w.Header().Set("Location", s.URL+r.URL.EscapedPath())
		w.WriteHeader(f.Status)
	case f.Status == http.StatusNoContent:
		w.WriteHeader(f.Status)
	case f.Status != 0:
		s.fail(w, f.Status, "Fault", "made up")
	default:
		w.WriteHeader(rec.Code)
		_, _ = w.Write(rec.Body.Bytes())
	}
}

func (s *restServer) apply(w http.ResponseWriter, r *http.Request, body []byte) {
	key, ok := s.tableKey(w, r)
	if !ok {
		return
	}
	var in struct {
		Requirements table.Requirements
		Updates      table.Updates
	}
	if err := json.Unmarshal(body, &in); err != nil {
		s.fail(w, http.StatusBadRequest, "BadRequestException", err.Error())
		return
	}
	t := s.tables[key]
	for _, q := range in.Requirements {
		if err := q.Validate(t.meta); err != nil {
			s.fail(w, http.StatusConflict, "CommitFailedException", err.Error())
			return
		}
	}
	next, err := table.UpdateTableMetadata(t.meta, in.Updates, t.location)
	if err != nil {
		s.fail(w, http.StatusBadRequest, "BadRequestException", err.Error())
		return
	}
	s.publish(key, next)
	s.replyTable(w, key)
}
