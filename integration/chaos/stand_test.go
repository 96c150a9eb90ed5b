//go:build chaos

package chaos_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/integration/history"
	"github.com/firn-project/firn/integration/restcatalog"
)

// stand is the table of a run: where it is, what breaks on the way to it, and who
// else reads and writes it.
type stand interface {
	// config is the part of a scheduler's file that says where tables are, in YAML.
	config() string
	// create makes the table lake.c.t by the first client, and has all know it.
	create(l *lab, partitioned bool)
	// begin lets faults happen.
	begin(l *lab)
	// calm ends them and lets what is late arrive. It gives the number of commits
	// that were sent.
	calm() int
	// fired counts the faults that happened, by name.
	fired() map[string]int
	// foreign appends a row as a writer that knows nothing of Firn. After an error
	// nobody knows whether it's there.
	foreign(ctx context.Context, row int64) error
	// judge reads the table, and gives the directory below which its files are.
	judge(l *lab) (v verdict, dir string)
}

// verdict is what an independent reader finds.
type verdict struct {
	rows map[int64]int
	// versions are the table's.
	versions int
	audit    history.Report
}

func execute(t *testing.T, c *client.Client, statement string) {
	t.Helper()
	if _, err := c.Execute(t.Context(), client.Statement{SQL: statement}); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// icebergStand is an Iceberg table in a REST catalog behind a proxy of faults.
type icebergStand struct {
	dir    string
	server *restcatalog.Server
	proxy  *restcatalog.Proxy
}

func newIcebergStand(t *testing.T, dir string) *icebergStand {
	t.Helper()
	s := &icebergStand{dir: dir}
	var err error
	if s.server, err = restcatalog.NewServer(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.server.Close(); err != nil {
			t.Error(err)
		}
	})
	if s.proxy, err = restcatalog.NewProxy(s.server.URL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.proxy.Close)
	return s
}

func (s *icebergStand) config() string {
	return fmt.Sprintf("catalogs: {lake: {type: rest, uri: %q}}\n", s.proxy.URL)
}

func (s *icebergStand) create(l *lab, partitioned bool) {
	by := ""
	if partitioned {
		by = " PARTITIONED BY (bucket(3, id))"
	}
	execute(l.t, l.clients[0], "CREATE NAMESPACE lake.c")
	execute(l.t, l.clients[0], "CREATE TABLE lake.c.t (id bigint, w string)"+by)
}

func (s *icebergStand) begin(l *lab) { s.proxy.Begin(l.schedule) }

func (s *icebergStand) calm() int {
	sent := s.proxy.Requests()["commit"]
	s.proxy.Begin(nil)
	s.proxy.Flush()
	return sent
}

func (s *icebergStand) fired() map[string]int { return s.proxy.Fired() }

// foreign goes to the catalog without a proxy, with iceberg-go and its retries.
func (s *icebergStand) foreign(ctx context.Context, row int64) error {
	return restcatalog.Change(ctx, s.server.URL, []string{"c", "t"}, restcatalog.Append(row))
}

func (s *icebergStand) judge(l *lab) (v verdict, dir string) {
	ctx := l.t.Context()
	tbl, err := s.server.Table(ctx, "c", "t")
	if err != nil {
		l.t.Fatalf("the table can't be loaded: %v", err)
	}
	v.versions = len(tbl.Metadata().Snapshots())
	if v.rows, err = history.Read(ctx, tbl, "id"); err != nil {
		l.t.Fatalf("the table can't be read: %v", err)
	}
	if v.audit, err = history.Audit(ctx, tbl, tokensKey); err != nil {
		l.t.Fatal(err)
	}
	return v, filepath.Join(s.dir, "warehouse")
}
