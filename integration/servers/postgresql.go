package servers

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/firn-project/firn/integration/process"
)

// PostgreSQL is a database server with one user, a superuser without a password,
// for whom connections from 127.0.0.1 are trusted.
type PostgreSQL struct {
	Host string
	Port int
	User string

	run func(name string, args ...string) *exec.Cmd
}

// URL is the connection URL of a database.
func (p *PostgreSQL) URL(database string) string {
	return fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", p.User, net.JoinHostPort(p.Host, strconv.Itoa(p.Port)), database)
}

// StartPostgreSQL starts PostgreSQL. It refuses to run as root, so that a test
// of root's runs it as nobody.
func StartPostgreSQL(t testing.TB) *PostgreSQL {
	t.Helper()
	bin := postgresBin(t)
	dir := tempDir(t)
	p := &PostgreSQL{Host: "127.0.0.1", Port: freePorts(t, 1)[0], User: "firn"}
	var as *syscall.Credential
	if os.Getuid() == 0 {
		as = unprivileged(t)
		if err := os.Chown(dir, int(as.Uid), int(as.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	p.run = func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(bin, name), args...)
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
		return cmd
	}
	data := filepath.Join(dir, "data")
	initdb := p.run("initdb", "-D", data, "-U", p.User, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
	initdb.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + dir, "LC_ALL=C"}
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	cmd := p.run("postgres", "-D", data, "-p", strconv.Itoa(p.Port), "-c", "listen_addresses="+p.Host,
		"-c", "unix_socket_directories=", "-c", "max_connections=200")
	// SIGINT ends the sessions that a test has left open.
	server := start(t, "postgresql", syscall.SIGINT, cmd)
	server.await(t, p.ping)
	return p
}

// ping asks for a connection as clients do: the port alone is open before the
// server takes sessions.
func (p *PostgreSQL) ping(ctx context.Context) error {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(p.Host, strconv.Itoa(p.Port)))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	// A startup message, protocol 3.0: length, version, pairs of words, an empty one.
	body := "\x00\x03\x00\x00user\x00" + p.User + "\x00database\x00postgres\x00\x00"
	n := len(body) + 4
	if _, err := c.Write(append([]byte{0, 0, byte(n >> 8), byte(n)}, body...)); err != nil {
		return err
	}
	answer := make([]byte, 1)
	if _, err := c.Read(answer); err != nil {
		return err
	}
	if answer[0] != 'R' { // authentication, which is trust
		return fmt.Errorf("PostgreSQL answers %q", answer)
	}
	return nil
}

// MakeDatabase makes an empty database and gives its URL.
func (p *PostgreSQL) MakeDatabase(t testing.TB, name string) string {
	t.Helper()
	cmd := p.run("createdb", "-h", p.Host, "-p", strconv.Itoa(p.Port), "-U", p.User, name)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make database %s: %v\n%s", name, err, out)
	}
	return p.URL(name)
}

// postgresBin is the directory of PostgreSQL's programs: Debian keeps them out
// of the path. The newest version is taken.
func postgresBin(t testing.TB) string {
	t.Helper()
	const debian = "/usr/lib/postgresql/*/bin/postgres"
	found, err := filepath.Glob(debian)
	if err != nil {
		t.Fatal(err)
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path)
		}
	}
	if len(found) == 0 {
		process.NotHad(t, "postgresql", "the system's package postgresql", "no postgres in the path nor as "+debian)
	}
	return filepath.Dir(slices.Max(found))
}

// unprivileged is the user nobody.
func unprivileged(t testing.TB) *syscall.Credential {
	t.Helper()
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}
