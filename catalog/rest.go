package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	ice "github.com/apache/iceberg-go"
	icecatalog "github.com/apache/iceberg-go/catalog"
	icerest "github.com/apache/iceberg-go/catalog/rest"
	"github.com/apache/iceberg-go/table"

	"github.com/firn-project/firn/catalog/iceberg"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/config"
	"github.com/firn-project/firn/internal/objstore"
)

// defaultSeparator joins the levels of a namespace in a path.
const defaultSeparator = "%1F"

// restCatalog is a REST catalog. Names and listings go through iceberg-go's
// client. Tables are loaded here, because a commit must be judged by all
// snapshots and the library asks for fewer when a server's configuration says
// so; and commits are sent here, because the library's errors don't tell what
// became of them.
type restCatalog struct {
	name  string
	lib   *icerest.Catalog
	http  *restHTTP
	store objstore.Store
	// base is the URL up to the prefix, without a slash at the end.
	base      string
	separator string
	// idempotent: the server takes an Idempotency-Key with a commit.
	idempotent bool
}

func openREST(ctx context.Context, c Config, store objstore.Store, told observer) (*restCatalog, error) {
	u, err := url.Parse(c.URI)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, configError(c.Name, fmt.Errorf("uri %q: want http:// or https://", config.MaskURI(c.URI)))
	}
	h, err := newRESTHTTP(c, u, told)
	if err != nil {
		return nil, configError(c.Name, err)
	}
	r := &restCatalog{name: c.Name, http: h, store: store, separator: defaultSeparator}
	if err := r.configure(ctx, u, c); err != nil {
		h.Close()
		return nil, r.wrap("open catalog", c.Name, err)
	}
	opts := []icerest.Option{icerest.WithCustomTransport(h), icerest.WithAdditionalProps(clientProperties(c.Properties))}
	if h.auth != nil {
		opts = append(opts, icerest.WithAuthManager(h.auth))
	}
	if c.Warehouse != "" {
		opts = append(opts, icerest.WithWarehouseLocation(c.Warehouse))
	}
	if p := c.Properties["prefix"]; p != "" {
		opts = append(opts, icerest.WithPrefix(p))
	}
	if r.lib, err = icerest.NewCatalog(ctx, c.Name, c.URI, opts...); err != nil {
		h.Close()
		return nil, r.wrap("open catalog", c.Name, err)
	}
	return r, nil
}

// clientProperties leaves the secrets out of what the library keeps: it
// authenticates through our transport.
func clientProperties(props map[string]string) ice.Properties {
	out := ice.Properties{}
	for k, v := range props {
		if strings.HasPrefix(k, "header.") {
			out[k] = v
		}
	}
	return out
}

// configure asks the server for its configuration: defaults, then ours, then
// its overrides.
func (r *restCatalog) configure(ctx context.Context, u *url.URL, c Config) error {
	var reply struct {
		Defaults, Overrides map[string]string
		// KeyLifetime is set by servers that take idempotency keys.
		KeyLifetime string `json:"idempotency-key-lifetime"`
	}
	at := u.JoinPath("v1", "config")
	if c.Warehouse != "" {
		at.RawQuery = url.Values{"warehouse": {c.Warehouse}}.Encode()
	}
	if err := r.http.getJSON(ctx, at.String(), &reply); err != nil {
		return err
	}
	r.idempotent = reply.KeyLifetime != ""
	props := map[string]string{}
	maps.Copy(props, reply.Defaults)
	maps.Copy(props, c.Properties)
	maps.Copy(props, reply.Overrides)
	if s := props["namespace-separator"]; s != "" {
		r.separator = s
	}
	root := u
	if v := props["uri"]; v != "" {
		var err error
		if root, err = url.Parse(v); err != nil {
			return fmt.Errorf("the server's configuration has the uri %q: %w", config.MaskURI(v), err)
		}
	}
	r.base = strings.TrimRight(root.JoinPath("v1", props["prefix"]).String(), "/")
	// Where credentials are sent is the user's word, and the server's only if
	// there is none: without one they go to the server itself.
	if e := props["oauth2-server-uri"]; r.http.auth != nil && c.Properties["oauth2-server-uri"] == "" && e != "" {
		return r.http.auth.at(u, e)
	}
	return nil
}

// tableURL is where a table is loaded from and committed to.
func (r *restCatalog) tableURL(name commit.TableName) string {
	levels := make([]string, len(name.Namespace))
	for i, l := range name.Namespace {
		levels[i] = url.PathEscape(l)
	}
	return r.base + "/namespaces/" + strings.Join(levels, r.separator) + "/tables/" + url.PathEscape(name.Name)
}

// wrap marks the library's errors that mean a lack of permission.
func (r *restCatalog) wrap(op, object string, err error) error {
	return mapped(op, object, restError(err))
}

func restError(err error) error {
	for _, denied := range []error{icerest.ErrForbidden, icerest.ErrUnauthorized, icerest.ErrAuthorizationExpired, icerest.ErrOAuthError} {
		if errors.Is(err, denied) {
			return fmt.Errorf("%w: %w", errPermission, err)
		}
	}
	return err
}

func (r *restCatalog) Close() error {
	err := r.lib.Close()
	r.http.Close()
	return err
}

func (r *restCatalog) Namespaces(ctx context.Context, parent []string) ([][]string, error) {
	all, err := r.lib.ListNamespaces(ctx, parent)
	if err != nil {
		return nil, restError(err)
	}
	out := make([][]string, 0, len(all))
	out = append(out, all...)
	slices.SortFunc(out, slices.Compare[[]string])
	return out, nil
}

func (r *restCatalog) NamespaceProperties(ctx context.Context, ns []string) (map[string]string, error) {
	p, err := r.lib.LoadNamespaceProperties(ctx, ns)
	return p, restError(err)
}

func (r *restCatalog) CreateNamespace(ctx context.Context, ns []string, props map[string]string) error {
	if props == nil {
		props = map[string]string{}
	}
	return restError(r.lib.CreateNamespace(ctx, ns, props))
}

func (r *restCatalog) DropNamespace(ctx context.Context, ns []string) error {
	return restError(r.lib.DropNamespace(ctx, ns))
}

func (r *restCatalog) Tables(ctx context.Context, ns []string) ([]string, error) {
	var out []string
	for ident, err := range r.lib.ListTables(ctx, ns) {
		if err != nil {
			return nil, restError(err)
		}
		out = append(out, ident[len(ident)-1])
	}
	slices.Sort(out)
	return out, nil
}

// Drop implements backend. The library doesn't escape percent signs in the names
// of tables and would drop another one.
func (r *restCatalog) Drop(ctx context.Context, name commit.TableName) error {
	err := r.http.delete(ctx, r.tableURL(name)+"?purgeRequested=false")
	if s, ok := errors.AsType[*statusError](err); ok && s.status == http.StatusNotFound {
		return fmt.Errorf("%w: %w", icecatalog.ErrNoSuchTable, err)
	}
	return err
}

func (r *restCatalog) Register(ctx context.Context, name commit.TableName, location string) error {
	_, err := r.lib.RegisterTable(ctx, identifier(name), location)
	return restError(err)
}

// Places implements backend: the server picks where a table goes.
func (*restCatalog) Places() bool { return true }

// Create implements backend. Below format version 3 a request on an empty table
// has no seat: servers let a first snapshot in whatever sequence number is taken.
// So a new table gets an empty first snapshot at once, before anybody could
// plan a job against it.
func (r *restCatalog) Create(ctx context.Context, name commit.TableName, meta table.Metadata) error {
	spec := meta.PartitionSpec()
	props := maps.Clone(meta.Properties())
	if props == nil {
		props = ice.Properties{}
	}
	props[table.PropertyFormatVersion] = strconv.Itoa(meta.Version())
	_, err := r.lib.CreateTable(ctx, identifier(name), meta.CurrentSchema(), icecatalog.WithPartitionSpec(&spec), icecatalog.WithProperties(props))
	if err != nil || meta.Version() >= 3 {
		return restError(err)
	}
	t := iceberg.Open(iceberg.Options{Name: name, Attach: r.Attach(name), Store: r.store})
	if err := t.First(ctx); err != nil {
		return fmt.Errorf("the table was created, but not its first snapshot: %w", err)
	}
	return nil
}

func (r *restCatalog) Attach(name commit.TableName) iceberg.Attachment {
	return &restAttachment{catalog: r, name: name}
}

// restAttachment is a table of a REST catalog.
type restAttachment struct {
	catalog *restCatalog
	name    commit.TableName
}

// Swaps implements iceberg.Attachment.
func (*restAttachment) Swaps() bool { return false }

// loadReply is the server's answer to a load.
type loadReply struct {
	MetadataLocation string              `json:"metadata-location"`
	Metadata         json.RawMessage     `json:"metadata"`
	Config           map[string]string   `json:"config"`
	Credentials      []vendedCredentials `json:"storage-credentials"`
}

// load asks for a table, with its snapshots: all, or refs for those that branches
// and tags name.
func (r *restCatalog) load(ctx context.Context, name commit.TableName, snapshots string) (loadReply, error) {
	var reply loadReply
	err := r.http.getJSON(ctx, r.tableURL(name)+"?snapshots="+snapshots, &reply)
	if s, ok := errors.AsType[*statusError](err); ok && s.status == http.StatusNotFound {
		return reply, iceberg.TableNotFound(name, "")
	}
	return reply, r.wrap("open table", name.String(), err)
}

// Load implements iceberg.Attachment.
func (a *restAttachment) Load(ctx context.Context) (iceberg.Loaded, error) {
	reply, err := a.catalog.load(ctx, a.name, "all")
	if err != nil {
		return iceberg.Loaded{}, err
	}
	meta, err := table.ParseMetadataBytes(reply.Metadata)
	if err == nil && meta.CurrentSchema() == nil {
		err = errors.New("it has no current schema")
	}
	if err != nil {
		return iceberg.Loaded{}, newError(commit.CodeMetadataInvalid, "open table", a.name.String(), err)
	}
	return iceberg.Loaded{Pointer: reply.MetadataLocation, Metadata: meta}, nil
}

// Send implements iceberg.Attachment.
func (a *restAttachment) Send(ctx context.Context, c iceberg.Change) commit.Answer {
	type ident struct {
		Namespace []string `json:"namespace"`
		Name      string   `json:"name"`
	}
	body, err := json.Marshal(struct {
		Identifier   ident               `json:"identifier"`
		Requirements []table.Requirement `json:"requirements"`
		Updates      []table.Update      `json:"updates"`
	}{ident{a.name.Namespace, a.name.Name}, c.Requirements, c.Updates})
	if err != nil {
		return commit.Answer{Class: commit.AnswerRejected, Err: err}
	}
	// The key is that of this request and no other: the same bytes have the same
	// key, also when something on the way sends them again, and what is built
	// again has a new one. A server keeps its answer to a key, a refusal too.
	key := ""
	if a.catalog.idempotent {
		key = c.RequestID
	}
	ans := a.catalog.http.postOnce(ctx, a.catalog.tableURL(a.name), body, key)
	if ans.Err != nil {
		ans.Err = fmt.Errorf("commit to %s: %w", a.name, ans.Err)
	}
	return ans
}

// drain reads what is left of a reply, so that its connection can be used again.
func drain(r io.Reader) {
	_, _ = io.Copy(io.Discard, io.LimitReader(r, 1<<20))
}
