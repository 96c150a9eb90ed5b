package catalog

import (
	"bytes"
	"context"
	stdsql "database/sql"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	ice "github.com/apache/iceberg-go"
	icesql "github.com/apache/iceberg-go/catalog/sql"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
)

// postgres is the one server of this package's tests.
var postgres struct {
	once sync.Once
	err  error
	addr string
	n    int
	stop func()
}

// startPostgres starts a server in a directory of its own, as another user when
// the tests run as root, which PostgreSQL refuses to do.
func startPostgres() (addr string, stop func(), err error) {
	bin := func(name string) string {
		if p, err := exec.LookPath(name); err == nil {
			return p
		}
		found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
		return strings.Join(found[max(0, len(found)-1):], "")
	}
	if bin("initdb") == "" || bin("postgres") == "" {
		return "", nil, exec.ErrNotFound
	}
	dir, err := os.MkdirTemp("", "firn-postgres-")
	if err != nil {
		return "", nil, err
	}
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			return "", nil, err
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		if err := os.Chown(dir, uid, gid); err != nil {
			return "", nil, err
		}
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	run := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(bin(name), args...)
		cmd.Dir, cmd.SysProcAttr = dir, attr
		return cmd
	}
	if out, err := run("initdb", "-D", dir+"/data", "-U", "firn", "-A", "trust", "--no-sync", "--locale=C", "-E", "UTF8").CombinedOutput(); err != nil {
		return "", nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	addr = l.Addr().String()
	l.Close()
	_, port, _ := net.SplitHostPort(addr)
	server := run("postgres", "-D", dir+"/data", "-h", "127.0.0.1", "-p", port, "-k", dir, "-c", "fsync=off", "-c", "max_connections=200")
	if err := server.Start(); err != nil {
		return "", nil, err
	}
	return addr, func() {
		_ = server.Process.Signal(syscall.SIGINT)
		_ = server.Wait()
		os.RemoveAll(dir)
	}, nil
}

// postgresURL is the address of a new, empty database.
func postgresURL(tb testing.TB) string {
	tb.Helper()
	postgres.once.Do(func() { postgres.addr, postgres.stop, postgres.err = startPostgres() })
	if postgres.err != nil {
		tb.Skip("PostgreSQL can't be started here: ", postgres.err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	db, err := stdsql.Open("pgx", "postgresql://firn@"+postgres.addr+"/postgres?sslmode=disable")
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	for db.PingContext(ctx) != nil {
		if ctx.Err() != nil {
			tb.Fatal("PostgreSQL doesn't answer")
		}
	}
	postgres.n++
	name := fmt.Sprintf("t%d", postgres.n)
	if _, err := db.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		tb.Fatal(err)
	}
	return "postgresql://firn@" + postgres.addr + "/" + name + "?sslmode=disable"
}

func openPostgresSet(tb testing.TB, uri, warehouse string) *Set {
	tb.Helper()
	return openWith(tb, Config{Name: "lake", Type: "sql", URI: uri, Warehouse: warehouse})
}

// postgresHarness is a table in a fresh database, reached by Firn at the address
// that through makes of the database's.
func postgresHarness(tb testing.TB, through func(uri string) string) *harness {
	tb.Helper()
	uri := postgresURL(tb)
	db, err := stdsql.Open("pgx", uri)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { db.Close() })
	lib, err := icesql.NewCatalog("lake", db, icesql.Postgres, ice.Properties{})
	if err != nil {
		tb.Fatal(err)
	}
	if through != nil {
		uri = through(uri)
	}
	return newHarness(tb, openPostgresSet(tb, uri, tb.TempDir()), lib)
}

func TestPostgresConformance(t *testing.T) {
	committest.Run(t, func(t *testing.T) committest.Harness {
		t.Helper()
		return postgresHarness(t, nil)
	})
}

// cutter is a proxy that ends a connection at the statement of a commit.
type cutter struct {
	net.Listener
	to string

	mu sync.Mutex
	// cut is "before" or "after" the database sees the statement.
	cut string
	n   int
}

func newCutter(tb testing.TB, to string) *cutter {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	c := &cutter{Listener: l, to: to}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() { c.serve(conn) })
		}
	})
	tb.Cleanup(func() { l.Close(); open.Wait() })
	return c
}

// take gives what is to be done with a chunk from the client.
func (c *cutter) take(chunk []byte) string {
	if !bytes.Contains(chunk, []byte("UPDATE iceberg_tables")) {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return c.cut
}

func (c *cutter) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", c.to)
	if err != nil {
		return
	}
	defer server.Close()
	var back sync.WaitGroup
	defer back.Wait()
	muted := make(chan struct{})
	replied := make(chan struct{}, 1)
	back.Go(func() {
		defer client.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := server.Read(buf)
			if err != nil {
				return
			}
			select {
			case <-muted:
				replied <- struct{}{}
				return
			default:
			}
			if _, err := client.Write(buf[:n]); err != nil {
				return
			}
		}
	})
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			server.Close()
			return
		}
		cut := c.take(buf[:n])
		if cut == "before" {
			server.Close()
			return
		}
		if cut == "after" {
			close(muted)
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
		if cut == "after" {
			<-replied
			server.Close()
			return
		}
	}
}

// A connection that is lost at the commit leaves an ambiguous answer, one
// statement was sent, and reading tells what became of it.
func TestPostgresConnectionLostAtTheCommit(t *testing.T) {
	for _, cut := range []string{"before", "after"} {
		t.Run(cut, func(t *testing.T) {
			var proxy *cutter
			h := postgresHarness(t, func(uri string) string {
				u, err := url.Parse(uri)
				if err != nil {
					t.Fatal(err)
				}
				proxy = newCutter(t, u.Host)
				u.Host = proxy.Addr().String()
				return u.String()
			})
			tbl := h.Open(t)
			u := h.Unit(t, "k", 1, 3)
			m, err := tbl.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			r, err := tbl.Build(t.Context(), m, []commit.Unit{u})
			if err != nil {
				t.Fatal(err)
			}
			proxy.mu.Lock()
			proxy.cut = cut
			proxy.mu.Unlock()
			if a := tbl.Send(t.Context(), r); a.Class != commit.AnswerAmbiguous || a.Err == nil {
				t.Errorf("answer %+v", a)
			}
			if m, err = tbl.Read(t.Context()); err != nil {
				t.Fatal(err)
			}
			landed := cut == "after"
			if _, ok := m.Find(commit.MainBranch, u.Token); ok != landed {
				t.Errorf("found %t, want %t", ok, landed)
			}
			proxy.mu.Lock()
			defer proxy.mu.Unlock()
			if proxy.n != 1 {
				t.Errorf("%d statements were sent", proxy.n)
			}
		})
	}
}

func TestPostgresAnswers(t *testing.T) {
	var uri string
	h := postgresHarness(t, func(u string) string { uri = u; return u })
	admin, err := stdsql.Open("pgx", uri)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	build := func(key string) (commit.Table, commit.Request) {
		t.Helper()
		tbl := h.Open(t)
		m, err := tbl.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r, err := tbl.Build(t.Context(), m, []commit.Unit{h.Unit(t, key, 1, 1)})
		if err != nil {
			t.Fatal(err)
		}
		return tbl, r
	}
	tbl, r := build("overtaken")
	h.Foreign(t)
	if a := tbl.Send(t.Context(), r); a.Class != commit.AnswerConflict {
		t.Errorf("overtaken: %+v", a)
	}
	// Another session holds the row, and waiting for it is bounded.
	h.Set = openPostgresSet(t, uri+"&options=-c%20lock_timeout%3D10ms", t.TempDir())
	tbl, r = build("locked")
	tx, err := admin.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "SELECT 1 FROM iceberg_tables FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	if a := tbl.Send(t.Context(), r); a.Class != commit.AnswerWait {
		t.Errorf("locked: %+v", a)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if a := tbl.Send(t.Context(), r); a.Class != commit.AnswerOK {
		t.Errorf("unlocked: %+v", a)
	}
	// A transaction that can't be serialised says nothing about the commit.
	h.Set = openPostgresSet(t, uri+"&options=-c%20default_transaction_isolation%3Dserializable", t.TempDir())
	tbl, r = build("serializable")
	if a := tbl.Send(t.Context(), r); a.Class != commit.AnswerOK {
		t.Errorf("serializable: %+v", a)
	}
	reader := fmt.Sprintf("reader%d", postgres.n) // roles are the server's, not the database's
	for _, q := range []string{"CREATE ROLE " + reader + " LOGIN", "GRANT SELECT ON ALL TABLES IN SCHEMA public TO " + reader} {
		if _, err := admin.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	h.Set = openPostgresSet(t, strings.Replace(uri, "firn@", reader+"@", 1), t.TempDir())
	tbl, r = build("reader")
	if a := tbl.Send(t.Context(), r); a.Class != commit.AnswerPermission {
		t.Errorf("reader: %+v", a)
	}
}

// What is acknowledged is durable whatever the role's default is.
func TestPostgresCommitsSynchronously(t *testing.T) {
	s := openPostgresSet(t, postgresURL(t)+"&options=-c%20synchronous_commit%3Doff", t.TempDir())
	var got string
	db := s.entries["lake"].backend.(observed).db
	if err := db.QueryRowContext(t.Context(), "SHOW synchronous_commit").Scan(&got); err != nil || got != "on" {
		t.Errorf("synchronous_commit is %q, %v", got, err)
	}
}

func TestPostgresConfig(t *testing.T) {
	for _, scheme := range postgresSchemes {
		cfg, err := postgresConfig(Config{URI: scheme + "db.example:5433/lake", Properties: map[string]string{"user": "me", "password": "SECRET"}})
		if err != nil || cfg.Host != "db.example" || cfg.Port != 5433 || cfg.Database != "lake" || cfg.User != "me" || cfg.Password != "SECRET" {
			t.Errorf("%s: %+v, %v", scheme, cfg, err)
		}
	}
	for name, uri := range map[string]string{
		"bad port": "postgresql://me:SECRET@h:port/lake", "bad option": "postgresql://me:SECRET@h/lake?sslmode=odd", "nobody there": "postgresql://me:SECRET@127.0.0.1:1/lake",
	} {
		_, err := Open(t.Context(), []Config{{Name: "x", Type: "sql", URI: uri}})
		if err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
