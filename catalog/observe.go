package catalog

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/apache/iceberg-go/table"

	"github.com/firn-project/firn/catalog/iceberg"
	"github.com/firn-project/firn/commit"
)

// Call is one request to a catalog that was answered, or not.
type Call struct {
	Catalog string
	// Method is an HTTP method, or what a database was asked for: list, load, create,
	// register, drop, swap.
	Method string
	// Code is an HTTP status or none when no answer came; of a database it is ok,
	// conflict or error.
	Code string
	Took time.Duration
}

// observer tells of a catalog's requests.
type observer struct {
	catalog string
	tell    func(Call)
}

func (o observer) called(method, code string, began time.Time) {
	if o.tell != nil {
		o.tell(Call{o.catalog, method, code, time.Since(began)})
	}
}

// asked is called for a database.
func (o observer) asked(method string, began time.Time, err error) {
	code := "ok"
	if err != nil {
		code = "error"
	}
	o.called(method, code, began)
}

// observedWire tells of each exchange on the wire, so that a request that was tried
// three times counts as three.
type observedWire struct {
	next http.RoundTripper
	told observer
}

// RoundTrip implements http.RoundTripper.
func (w observedWire) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	resp, err := w.next.RoundTrip(r)
	code := "none"
	if err == nil {
		code = strconv.Itoa(resp.StatusCode)
	}
	w.told.called(r.Method, code, began)
	return resp, err
}

// observed tells of what a database is asked for.
type observed struct {
	*sqlCatalog
	told observer
}

// Namespaces implements backend.
func (o observed) Namespaces(ctx context.Context, parent []string) (all [][]string, err error) {
	defer func(began time.Time) { o.told.asked("list", began, err) }(time.Now())
	return o.sqlCatalog.Namespaces(ctx, parent)
}

// Tables implements backend.
func (o observed) Tables(ctx context.Context, ns []string) (all []string, err error) {
	defer func(began time.Time) { o.told.asked("list", began, err) }(time.Now())
	return o.sqlCatalog.Tables(ctx, ns)
}

// Create implements backend.
func (o observed) Create(ctx context.Context, name commit.TableName, meta table.Metadata) (err error) {
	defer func(began time.Time) { o.told.asked("create", began, err) }(time.Now())
	return o.sqlCatalog.Create(ctx, name, meta)
}

// Register implements backend.
func (o observed) Register(ctx context.Context, name commit.TableName, location string) (err error) {
	defer func(began time.Time) { o.told.asked("register", began, err) }(time.Now())
	return o.sqlCatalog.Register(ctx, name, location)
}

// Drop implements backend.
func (o observed) Drop(ctx context.Context, name commit.TableName) (err error) {
	defer func(began time.Time) { o.told.asked("drop", began, err) }(time.Now())
	return o.sqlCatalog.Drop(ctx, name)
}

// Attach implements backend.
func (o observed) Attach(name commit.TableName) iceberg.Attachment {
	return observedTable{o.sqlCatalog.Attach(name), o.told}
}

type observedTable struct {
	iceberg.Attachment
	told observer
}

// Load implements iceberg.Attachment.
func (t observedTable) Load(ctx context.Context) (l iceberg.Loaded, err error) {
	defer func(began time.Time) { t.told.asked("load", began, err) }(time.Now())
	return t.Attachment.Load(ctx)
}

// Send implements iceberg.Attachment.
func (t observedTable) Send(ctx context.Context, c iceberg.Change) commit.Answer {
	began := time.Now()
	a := t.Attachment.Send(ctx, c)
	code := "error"
	switch a.Class {
	case commit.AnswerOK:
		code = "ok"
	case commit.AnswerConflict:
		code = "conflict"
	}
	t.told.called("swap", code, began)
	return a
}
