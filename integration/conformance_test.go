//go:build integration

package integration_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	ice "github.com/apache/iceberg-go"
	icerest "github.com/apache/iceberg-go/catalog/rest"

	"github.com/firn-project/firn/catalog"
	"github.com/firn-project/firn/catalog/catalogtest"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
	"github.com/firn-project/firn/integration/restcatalog"
	"github.com/firn-project/firn/integration/servers"
	"github.com/firn-project/firn/internal/objstore"
)

// realCatalog is a REST catalog that nobody here wrote, with its files in an object
// store, behind a proxy.
type realCatalog struct {
	set   *catalog.Set
	lib   *icerest.Catalog
	proxy *restcatalog.Proxy
	store servers.S3
	// made counts tables, sent commit requests.
	made, sent atomic.Int32
}

func newRealCatalog(t *testing.T, uri, warehouse, credential string, store servers.S3) *realCatalog {
	t.Helper()
	registerS3()
	p, err := restcatalog.NewProxy(uri)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	props := store.Storage()
	options := []icerest.Option{icerest.WithAdditionalProps(ice.Properties(store.Storage()))}
	if warehouse != "" {
		options = append(options, icerest.WithWarehouseLocation(warehouse))
	}
	if credential != "" {
		props["credential"] = credential
		options = append(options, icerest.WithCredential(credential))
	}
	set, err := catalog.Open(t.Context(), []catalog.Config{{Name: "lake", Type: "rest", URI: p.URL, Warehouse: warehouse, Properties: props}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := set.Close(); err != nil {
			t.Error(err)
		}
	})
	// The other writer goes past the proxy.
	lib, err := icerest.NewCatalog(t.Context(), "lake", uri, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lib.Close() })
	return &realCatalog{set: set, lib: lib, proxy: p, store: store}
}

// table makes a fresh table.
func (c *realCatalog) table(t *testing.T) *catalogtest.Harness {
	t.Helper()
	name := commit.TableName{Catalog: "lake", Namespace: []string{"air"}, Name: fmt.Sprintf("t%d", c.made.Add(1))}
	return catalogtest.New(t, c.set, c.lib, objstore.New(c.store.Config()), name)
}

// Inject implements catalogtest.Server.
func (c *realCatalog) Inject(f catalogtest.Fault) {
	g := restcatalog.Fault{Name: "fault", Status: f.Status, Arrives: restcatalog.Never}
	if f.Applied {
		g.Arrives = restcatalog.Now
	}
	switch f.Cut {
	case catalogtest.Before:
		g.Cut = restcatalog.Reply
	case catalogtest.Middle:
		g.Cut = restcatalog.Middle
	case catalogtest.Whole:
	}
	c.proxy.Begin(func(class restcatalog.Class, _ int) *restcatalog.Fault {
		if class != restcatalog.Commit {
			return nil
		}
		c.sent.Add(1)
		return &g
	})
}

// Sent implements catalogtest.Server.
func (c *realCatalog) Sent() int { return int(c.sent.Load()) }

// run runs the suites that every REST catalog passes.
func (c *realCatalog) run(t *testing.T) {
	t.Run("conformance", func(t *testing.T) {
		committest.Run(t, func(t *testing.T) committest.Harness { return c.table(t) })
	})
	t.Run("answers", func(t *testing.T) {
		catalogtest.Answers(t, func(t *testing.T) (*catalogtest.Harness, catalogtest.Server) {
			c.proxy.Begin(nil)
			return c.table(t), c
		})
	})
}

func TestConformanceJVM(t *testing.T) {
	m := servers.StartMinIO(t)
	m.MakeBucket(t, "lake")
	s := servers.StartRESTCatalog(t, servers.RESTCatalog{Warehouse: "s3://lake/warehouse", Store: m})
	newRealCatalog(t, s.URI, "", "", m).run(t)
}

func TestConformanceSeaweedFS(t *testing.T) {
	s := servers.StartSeaweedFS(t)
	newRealCatalog(t, s.Catalog, s.Warehouse, s.AccessKey+":"+s.SecretKey, s.S3).run(t)
}
