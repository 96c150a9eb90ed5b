package catalog

import (
	"os"
	"testing"

	icecatalog "github.com/apache/iceberg-go/catalog"
	"go.uber.org/goleak"

	"github.com/firn-project/firn/catalog/catalogtest"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.Cleanup(func(code int) {
			if postgres.stop != nil {
				postgres.stop()
			}
			os.Exit(code)
		}),
		// The library's Parquet reader and bun keep pools of their own.
		goleak.IgnoreTopFunction("database/sql.(*DB).connectionOpener"))
}

var airT = commit.TableName{Catalog: "lake", Namespace: []string{"air"}, Name: "t"}

// harness is the conformance suite's, with the catalog that it uses.
type harness struct {
	*catalogtest.Harness
	set *Set
}

func newHarness(tb testing.TB, set *Set, lib icecatalog.Catalog) *harness {
	tb.Helper()
	return &harness{catalogtest.New(tb, set, lib, objstore.New(objstore.Config{}), airT), set}
}
