package servers

import (
	"bufio"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// RESTCatalog is the Iceberg project's own REST catalog, which keeps its tables in
// a JDBC catalog. It takes any OAuth client and any token, and vends no keys by
// itself.
type RESTCatalog struct {
	// Warehouse is where tables lie, s3://bucket/prefix in Store; a directory of
	// the test's own if empty.
	Warehouse string
	Store     S3
	// Vend has it give keys with each table: the store's STS makes them, for 15
	// minutes and for what lies below the table's location.
	Vend bool
	// Properties are added to the catalog's own.
	Properties map[string]string

	// URI is set by StartRESTCatalog.
	URI string
}

// StartRESTCatalog starts the catalog.
func StartRESTCatalog(t testing.TB, c RESTCatalog) RESTCatalog {
	t.Helper()
	lib := filepath.Dir(installed(t, "restcatalog", "RestCatalog.class"))
	dir := tempDir(t)
	props := map[string]string{
		"catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog", "jdbc.schema-version": "V1",
		"uri": "jdbc:sqlite:" + filepath.Join(dir, "catalog.db"), "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
		"s3.endpoint": c.Store.Endpoint, "client.region": c.Store.Region, "s3.path-style-access": "true",
		"s3.access-key-id": c.Store.AccessKey, "s3.secret-access-key": c.Store.SecretKey, "warehouse": c.Warehouse,
	}
	if c.Warehouse == "" {
		props["warehouse"], props["io-impl"] = filepath.Join(dir, "warehouse"), "org.apache.iceberg.inmemory.InMemoryFileIO"
	}
	if c.Vend {
		props["vend"] = "true"
	}
	maps.Copy(props, c.Properties)
	var input strings.Builder
	for _, k := range slices.Sorted(maps.Keys(props)) {
		fmt.Fprintf(&input, "%s=%s\n", k, props[k])
	}
	// The JIT's first stage is enough for a test, and starts sooner.
	cmd := exec.Command("java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", lib+"/*:"+lib, "RestCatalog")
	cmd.Dir = dir
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	server := start(t, "restcatalog", interrupt, cmd)
	if _, err := fmt.Fprintln(in, input.String()); err != nil {
		t.Fatal(err)
	}
	port, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the REST catalog printed no port: %v\n%s", err, server.log.tail())
	}
	c.URI = "http://127.0.0.1:" + strings.TrimSpace(port)
	server.await(t, answers(c.URI+"/v1/config"))
	return c
}
