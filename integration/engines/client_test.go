//go:build interop

package engines_test

import (
	"bufio"
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/firn-project/firn/integration/process"
)

// local is a scheduler whose catalog and tables are on the local disk.
type local struct {
	sched                     *process.Server
	client                    *process.Client
	dir, catalogDB, warehouse string
}

func newLocal(t *testing.T) *local { return startLocal(t, t.TempDir()) }

// startLocal starts it in a directory, with further flags.
func startLocal(t *testing.T, dir string, flags ...string) *local {
	t.Helper()
	l := &local{dir: dir, catalogDB: filepath.Join(dir, "catalog.db"), warehouse: filepath.Join(dir, "warehouse")}
	config := filepath.Join(dir, "scheduler.yaml")
	body := fmt.Sprintf("catalogs: {lake: {type: sql, uri: 'sqlite://%s', warehouse: '%s'}}\n", l.catalogDB, l.warehouse)
	if err := os.WriteFile(config, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	l.sched = process.Start(t, append([]string{"scheduler", "--listen", "127.0.0.1:0", "--dir", filepath.Join(dir, "scheduler"), "--config", config}, flags...)...)
	l.client = process.NewClient(t, "--server", l.sched.Address)
	return l
}

// script runs a script in Python against the scheduler. Whatever it prints is given
// to said, which answers with an empty line when it returns true.
func (l *local) script(t *testing.T, name string, said func(line string) bool) {
	t.Helper()
	path, err := filepath.Abs(module)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python(t), name, "grpc://"+l.sched.Address, l.catalogDB, l.warehouse)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+path, "PYTHONDONTWRITEBYTECODE=1")
	var errors bytes.Buffer
	cmd.Stderr = &errors
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if said(lines.Text()) {
			if _, err := io.WriteString(in, "\n"); err != nil {
				t.Error(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, &errors)
	}
}

// TestClient goes through the outcomes of writes with the example's client: each is
// told for what it is, also when the scheduler is killed in between.
func TestClient(t *testing.T) {
	l := newLocal(t)
	l.client.Exec(nil, "CREATE NAMESPACE lake.air")
	for _, name := range []string{"t", "u"} {
		l.client.Exec(nil, "CREATE TABLE lake.air."+name+" (id bigint)")
	}
	l.script(t, "outcomes.py", func(line string) bool {
		t.Log(line)
		switch line {
		case "stop":
			l.sched.Kill()
			return true
		case "start":
			l.sched = l.sched.Again(t)
			return true
		}
		return false
	})
}

// TestTypes has the example's client write each type under each partition transform:
// Firn takes the texts of its partition values, and other readers give the same rows.
func TestTypes(t *testing.T) {
	l := newLocal(t)
	l.client.Exec(nil, "CREATE NAMESPACE lake.types")
	var statements strings.Builder
	l.script(t, "all_types.py", func(line string) bool {
		if strings.HasPrefix(line, "CREATE ") {
			statements.WriteString(line)
			return false
		}
		if line != "" {
			t.Log(line)
			return false
		}
		file := filepath.Join(l.dir, "tables.sql")
		if err := os.WriteFile(file, []byte(statements.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		if r := process.Run(t.Context(), t, "sql", "--server", l.sched.Address, "-f", file); r.Code != 0 {
			t.Fatalf("%s", r.Stderr)
		}
		return true
	})
}

// TestClientOverTLS: the example's client writes over TLS with a token, workers with
// theirs, and who has the wrong one is told so.
func TestClientOverTLS(t *testing.T) {
	dir := t.TempDir()
	server := httptest.NewTLSServer(http.NotFoundHandler()) // it has a certificate for 127.0.0.1
	server.Close()
	pair := server.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]pem.Block{"ca.crt": {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, "key.pem": {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ca, token := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "client.token")
	r := process.Run(t.Context(), t, "token", "create", "--dir", filepath.Join(dir, "scheduler"), "--role", "client", "--name", "tests")
	if err := os.WriteFile(token, []byte(r.Stdout), 0o600); err != nil || r.Code != 0 {
		t.Fatal(err, r.Stderr)
	}
	l := startLocal(t, dir, "--tls-cert", ca, "--tls-key", filepath.Join(dir, "key.pem"), "--tls-ca", ca)
	c := process.NewClient(t, "--server", l.sched.Address, "--tls-ca", ca, "--token-file", token)
	c.Exec(nil, "CREATE NAMESPACE lake.air")
	c.Exec(nil, "CREATE TABLE lake.air.t (id bigint)")
	l.script(t, "over_tls.py", func(line string) bool {
		t.Log(line)
		return false
	})
}
