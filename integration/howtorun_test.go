//go:build integration

package integration_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/firn-project/firn/integration/process"
	"github.com/firn-project/firn/integration/servers"
)

// freeAddress is an address of this machine that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestHowToMinIO follows the page about MinIO, with the servers of the compose file
// started without Docker.
func TestHowToMinIO(t *testing.T) {
	m := servers.StartMinIO(t)
	m.MakeBucket(t, "lake")
	c := servers.StartRESTCatalog(t, servers.RESTCatalog{Warehouse: "s3://lake/warehouse", Store: m})
	upload(t, m, "../examples/flights/flights-sample.parquet", "s3://lake/landing/flights-sample.parquet")
	dir, address := t.TempDir(), freeAddress(t)
	file, err := os.ReadFile("../examples/minio/scheduler.yaml")
	if err != nil {
		t.Fatal(err)
	}
	here := strings.NewReplacer("http://127.0.0.1:9000", m.Endpoint, "http://127.0.0.1:8181", c.URI)
	config := filepath.Join(dir, "scheduler.yaml")
	if err := os.WriteFile(config, []byte(here.Replace(string(file))), 0o600); err != nil {
		t.Fatal(err)
	}

	script := strings.Join(blocks(t, "minio.md", "sh"), "\nuntil firn sql --server 127.0.0.1:7350 -c 'SHOW CATALOGS'; do sleep 0.1; done\n")
	script = regexp.MustCompile(`(?m)^docker (.*\\\n)*.*\n`).ReplaceAllString(script, "")
	if strings.Contains(script, "docker") || strings.Count(script, "firn ") != 6 {
		t.Fatalf("the page has other commands now:\n%s", script)
	}
	script = strings.NewReplacer("firn scheduler", "firn scheduler --listen "+address, "127.0.0.1:7350", address, "/tmp/firn", dir,
		"examples/minio/scheduler.yaml", config, "FIRN_S3_KEY=firn-admin ", "FIRN_S3_KEY="+m.AccessKey+" ", "FIRN_S3_SECRET=firn-admin-secret", "FIRN_S3_SECRET="+m.SecretKey).Replace(script)
	cmd := exec.CommandContext(t.Context(), "bash", "-c", "set -euo pipefail\ntrap 'kill $(jobs -p); wait' EXIT\n"+script+
		"\nfirn sql --server "+address+" -o json -c 'SELECT count(*) AS n FROM lake.air.flights'\n")
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(process.Binary(t))+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), `[{"n":50005}]`) {
		t.Errorf("%v\n%s\n%s", err, script, out)
	}
}

// TestHowToSecrets follows the page about secrets: its file is valid and shown
// without them, and its CREATE CATALOG reaches SeaweedFS, also after a restart.
func TestHowToSecrets(t *testing.T) {
	s := servers.StartSeaweedFS(t)
	dir := t.TempDir()
	files := blocks(t, "secrets.md", "yaml")
	secret := filepath.Join(dir, "secret")
	config := filepath.Join(dir, "firn.yaml")
	file := strings.NewReplacer("/run/secrets/s3-key", secret, "pass show catalog-token", "cat "+secret).Replace(files[0])
	for path, text := range map[string]string{secret: "CANARY-file\n", config: file} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("CATALOG_CREDENTIAL", "CANARY:env")
	t.Setenv("S3_KEY_ID", "CANARY-id")
	for _, command := range []string{"validate", "view"} {
		r := process.Run(t.Context(), t, "config", command, "--config", config)
		if r.Code != 0 || strings.Contains(r.Stdout+r.Stderr, "CANARY") {
			t.Errorf("config %s: exit code %d\n%s%s", command, r.Code, r.Stdout, r.Stderr)
		}
	}

	if err := os.WriteFile(config, []byte(files[1]), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"LAKE_CREDENTIAL=" + s.AccessKey + ":" + s.SecretKey}
	at := filepath.Join(dir, "scheduler")
	sched := process.StartWith(t, env, "scheduler", "--listen", "127.0.0.1:0", "--dir", at, "--config", config)
	c := process.NewClient(t, "--server", sched.Address)
	create := strings.NewReplacer("https://catalog.example.com", s.Catalog, "'main'", "'"+s.Warehouse+"'").Replace(blocks(t, "secrets.md", "sql")[0])
	c.Exec(nil, create)
	sched.Stop(t)
	kept, err := os.ReadFile(filepath.Join(at, "catalogs.json"))
	if err != nil || strings.Contains(string(kept), s.SecretKey) || !strings.Contains(string(kept), "LAKE_CREDENTIAL") {
		t.Errorf("catalogs.json: %v\n%s", err, kept)
	}
	sched = sched.Again(t, env...)
	c = process.NewClient(t, "--server", sched.Address)
	c.Exec(nil, "SHOW NAMESPACES IN prod")
}
