//go:build integration

package canary_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/firn-project/firn/integration/canary"
	"github.com/firn-project/firn/integration/process"
	"github.com/firn-project/firn/integration/servers"
	"github.com/firn-project/firn/internal/objstore"
)

// mark begins every canary. marker is what must be found: it shows that a place can
// be searched.
const (
	mark   = "kNr7Canary-"
	marker = "kNr7Marker-of-a-statement"
)

// lab is a cluster whose scheduler has all the canaries.
type lab struct {
	t         *testing.T
	dir       string
	planted   []string
	store     servers.S3
	rest      servers.RESTCatalog
	sched     *process.Server
	executors []*process.Server
	wire      *canary.Wire
	told      bytes.Buffer // all that clients were answered
}

// plant makes a canary.
func (l *lab) plant(name string) string {
	s := mark + name + "-61c5"
	l.planted = append(l.planted, s)
	return s
}

func (l *lab) file(name, content string) string {
	l.t.Helper()
	path := filepath.Join(l.t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		l.t.Fatal(err)
	}
	return path
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, dir: t.TempDir(), store: servers.StartMinIO(t)}
	l.planted = append(l.planted, l.store.SecretKey)
	l.store.MakeBucket(t, "lake")
	l.rest = servers.StartRESTCatalog(t, servers.RESTCatalog{Warehouse: "s3://lake/warehouse", Store: l.store})
	pg := servers.StartPostgreSQL(t)
	database := strings.Replace(pg.MakeDatabase(t, "catalog"), "firn@", "firn:"+l.plant("uri-password")+"@", 1)

	s3 := fmt.Sprintf("      s3.endpoint: %s\n      s3.region: %s\n      s3.sts-endpoint: %s\n      s3.access-key-id: %s\n      s3.secret-access-key_file: %s\n",
		l.store.Endpoint, l.store.Region, l.store.Endpoint, l.store.AccessKey, l.file("s3-key", l.store.SecretKey))
	indented := strings.ReplaceAll(s3, "\n      ", "\n        ")
	body := "catalogs:\n" +
		"  lake:\n    type: rest\n    uri: " + l.rest.URI + "\n    properties:\n" + s3 +
		"      credential: {env: CANARY_CREDENTIAL}\n      header.X-Canary: " + l.plant("header") + "\n      scope: canary\n" +
		"  bear:\n    type: rest\n    uri: " + l.rest.URI + "\n    properties:\n" + s3 +
		"      token_command: cat " + l.file("token", l.plant("token-of-a-command")) + "\n      header.X-File_file: " + l.file("header", l.plant("header-of-a-file")) + "\n" +
		"  pg:\n    type: sql\n    uri: " + database + "\n    warehouse: s3://lake/pg\n    properties:\n" + s3 +
		"create_catalog:\n  types: [rest]\n" +
		"sources:\n  stores:\n    - location: s3://lake/landing\n      properties:\n  " + indented +
		"delta:\n  paths:\n    - location: s3://lake/tables\n      properties:\n  " + indented
	config := l.file("scheduler.yaml", strings.TrimRight(body, " "))
	l.sched = process.StartWith(t, []string{"CANARY_CREDENTIAL=" + l.plant("client") + ":" + l.plant("client-secret")},
		"scheduler", "--listen", "127.0.0.1:0", "--dir", filepath.Join(l.dir, "scheduler"), "--config", config, "--log-level", "debug")
	l.wire = canary.NewWire(t, l.sched.Address)
	for i := range 2 {
		l.executors = append(l.executors, process.Start(t, "executor", "--server", l.wire.Address,
			"--dir", filepath.Join(l.dir, fmt.Sprint("executor-", i)), "--slots", "1", "--memory", "512MB", "--log-level", "debug"))
	}
	l.firn(0, "config", "view", "--config", config)
	l.landing()
	return l
}

// landing puts an input into the store.
func (l *lab) landing() {
	l.t.Helper()
	path, err := filepath.Abs("../../examples/flights/flights-sample.parquet")
	if err != nil {
		l.t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		l.t.Fatal(err)
	}
	if err := objstore.WriteFile(l.t.Context(), objstore.New(l.store.Config()), "s3://lake/landing/flights.parquet", raw); err != nil {
		l.t.Fatal(err)
	}
}

// firn runs a command, which must end with a code (any for -1), and keeps what it
// printed.
func (l *lab) firn(code int, args ...string) {
	l.t.Helper()
	r := process.Run(l.t.Context(), l.t, args...)
	l.told.WriteString(r.Stdout + r.Stderr)
	if code >= 0 && r.Code != code || code < 0 && r.Code == 0 {
		l.t.Fatalf("firn %s ended with %d:\n%s%s", strings.Join(args, " "), r.Code, r.Stdout, r.Stderr)
	}
}

func (l *lab) sql(statement string) {
	l.t.Helper()
	l.firn(0, "sql", "--server", l.sched.Address, "-o", "json", "-c", statement)
}

// fails runs a statement that ends with an error.
func (l *lab) fails(statement string) {
	l.t.Helper()
	l.firn(-1, "sql", "--server", l.sched.Address, "-o", "json", "-c", statement)
}

// work runs the main paths.
func (l *lab) work(secretToken string) {
	l.t.Helper()
	const read = "SELECT * FROM read_parquet('s3://lake/landing/*.parquet')"
	for _, catalog := range []string{"lake", "pg"} {
		l.sql("CREATE NAMESPACE " + catalog + ".air")
		l.sql("CREATE TABLE " + catalog + ".air.flights (date timestamp, delay bigint, distance bigint, origin string, destination string) PARTITIONED BY (month(date))")
		l.sql("INSERT INTO " + catalog + ".air.flights " + read)
		l.sql("EXPLAIN INSERT INTO " + catalog + ".air.flights " + read)
	}
	l.sql("INSERT INTO lake.air.flights SELECT date, delay, distance, '" + marker + "', destination FROM pg.air.flights WHERE delay > 0")
	l.sql("SELECT origin, count(*), sum(f.distance) FROM bear.air.flights f GROUP BY origin ORDER BY 2 DESC LIMIT 3")
	for _, table := range []string{"delta.`s3://lake/tables/flights`", "pg.air.d"} {
		l.sql("CREATE TABLE " + table + " (delay bigint, origin string) USING delta PARTITIONED BY (origin)")
		l.sql("INSERT INTO " + table + " SELECT delay, origin FROM pg.air.flights LIMIT 100")
		l.sql("SELECT count(*) FROM " + table)
		l.sql("DESCRIBE HISTORY " + table)
	}
	l.fails("INSERT INTO delta.`s3://lake/elsewhere/t` VALUES (1, 'x')")
	l.fails("SELECT * FROM delta.`s3://lake/tables/none`")
	l.sql("CREATE CATALOG made WITH (type = 'rest', uri = '" + l.rest.URI + "', token = '" + secretToken + "')")
	l.sql("SHOW NAMESPACES IN made")
	for _, s := range []string{
		"INSERT INTO made.air.missing " + read,
		"CREATE CATALOG silent WITH (type = 'rest', uri = 'http://127.0.0.1:1', token = '" + secretToken + "')",
		"CREATE CATALOG other WITH (type = 'nonsense', uri = 'x', token = '" + secretToken + "')",
		"CREATE CATALOG other WITH (type = 'rest', token = '" + secretToken + "'",
		"INSERT INTO lake.air.missing " + read, "INSERT INTO lake.air.flights SELECT * FROM read_parquet('s3://lake/landing/none.parquet')",
		"INSERT INTO lake.air.flights SELECT * FROM read_parquet('s3://other/none.parquet')",
		"INSERT INTO lake.air.flights SELECT date, 'x'::bigint, distance, origin, destination FROM pg.air.flights",
		"SELECT getenv('CANARY_CREDENTIAL')",
	} {
		l.fails(s)
	}
	for _, catalog := range []string{"lake", "pg"} {
		l.external(catalog+".air.flights", "SELECT TIMESTAMP '2001-01-01' + i * INTERVAL 1 HOUR AS date, i AS delay, i AS distance, '"+marker+"' AS origin, 'B' AS destination FROM range(10) r(i)")
	}
	l.external("pg.air.d", "SELECT i AS delay FROM range(10) r(i)")
	l.firn(0, "catalog", "check", "lake", "--server", l.sched.Address, "-o", "json")
	l.firn(0, "job", "list", "--server", l.sched.Address, "-o", "json")
	l.firn(0, "commit", "list", "--all", "--server", l.sched.Address, "-o", "json")
	for _, s := range []string{"SHOW CATALOGS", "DESCRIBE TABLE lake.air.flights", "SHOW TABLES IN pg.air"} {
		l.sql(s)
	}
}

// none fails the test if something was found, or if nothing was looked at.
func none(t *testing.T, where string, found []string, searched int64, err error) {
	t.Helper()
	t.Logf("%s: %d KiB searched", where, searched>>10)
	if err != nil || searched == 0 {
		t.Errorf("%s: %d bytes searched: %v", where, searched, err)
	}
	for _, f := range found {
		t.Errorf("%s has a secret: %s", where, f)
	}
}

// TestNoSecretLeavesTheScheduler: see the package's comment. What must be found is
// found by the same search: the canaries in the scheduler's own memory, and a text of
// a statement wherever statements go.
func TestNoSecretLeavesTheScheduler(t *testing.T) {
	l := newLab(t)
	secrets, control := canary.NewMarks(mark, l.store.SecretKey), canary.NewMarks(marker)
	literal := l.plant("of-a-statement")
	l.work(literal)
	l.searchShuffle(secrets, control)

	for i, e := range l.executors {
		found, n, err := secrets.Process(e.PID())
		none(t, fmt.Sprintf("executor %d: memory and environment", i), found, n, err)
		found, n, err = secrets.Tree(filepath.Join(l.dir, fmt.Sprint("executor-", i)))
		none(t, fmt.Sprintf("executor %d: files", i), found, n, err)
		log := []byte(e.Log())
		none(t, fmt.Sprintf("executor %d: log", i), secrets.In(log), int64(len(log)), nil)
	}
	said := l.wire.Said()
	none(t, "wire", secrets.In(said), int64(len(said)), nil)
	log := []byte(l.sched.Log())
	none(t, "scheduler's log", secrets.In(log), int64(len(log)), nil)
	none(t, "answers to clients", secrets.In(l.told.Bytes()), int64(l.told.Len()), nil)
	// catalogs.json is where definitions are kept that statements made.
	found, n, err := secrets.Tree(filepath.Join(l.dir, "scheduler"), "catalogs.json")
	none(t, "journal and state", found, n, err)
	l.objects(secrets)

	inScheduler := map[string]bool{}
	for _, c := range l.planted {
		found, _, err := canary.NewMarks(c).Process(l.sched.PID())
		if err != nil {
			t.Fatal(err)
		}
		if inScheduler[c] = len(found) > 0; !inScheduler[c] {
			t.Errorf("control: %s isn't found in the scheduler, which has it", c)
		}
	}
	worked := false
	for _, e := range l.executors {
		found, _, err := control.Process(e.PID())
		worked = worked || err == nil && len(found) > 0
	}
	if !worked {
		t.Error("control: no executor has the text of a statement that it ran in memory")
	}
	if len(control.In(said)) == 0 {
		t.Error("control: a statement's text didn't go over the wire")
	}
	if found, _, _ := control.Tree(filepath.Join(l.dir, "scheduler")); len(found) == 0 {
		t.Error("control: a statement's text isn't in the journal")
	}
	if !strings.Contains(string(log), "scheduler ready") || !strings.Contains(l.told.String(), "FIRN-") {
		t.Error("control: nothing was logged, or no statement failed")
	}
}

// searchShuffle searches the executors' files again and again while a job moves rows
// between them, until the marker was found there.
func (l *lab) searchShuffle(secrets, control canary.Marks) {
	l.t.Helper()
	done := make(chan process.Result, 1)
	go func() {
		done <- process.Run(l.t.Context(), l.t, "sql", "--server", l.sched.Address, "-o", "json", "-c",
			"INSERT INTO lake.air.flights SELECT date, delay, distance, '"+marker+"', destination FROM pg.air.flights, range(40) ORDER BY delay")
	}()
	var searched int64
	seen := false
	for {
		select {
		case r := <-done:
			if r.Code != 0 || !seen {
				l.t.Errorf("control: the marker was in shuffle files: %v; %s", seen, r.Stderr)
			}
			l.t.Logf("shuffle and spill files: %d MiB searched", searched>>20)
			return
		default:
		}
		for i := range l.executors {
			dir := filepath.Join(l.dir, fmt.Sprint("executor-", i))
			found, n, err := secrets.Tree(dir)
			if searched += n; err != nil || len(found) > 0 {
				l.t.Errorf("executor %d: files: %q, %v", i, found, err)
			}
			found, _, _ = control.Tree(dir)
			seen = seen || len(found) > 0
		}
	}
}

// objects searches what lies in the store.
func (l *lab) objects(m canary.Marks) {
	l.t.Helper()
	s := objstore.New(l.store.Config())
	for o, err := range s.List(l.t.Context(), "s3://lake/") {
		if err != nil {
			l.t.Fatal(err)
		}
		r, err := s.Open(l.t.Context(), o.URI)
		if err != nil {
			l.t.Fatal(err)
		}
		raw := make([]byte, r.Size())
		if _, err := r.ReadAt(raw, 0); err != nil && int64(len(raw)) != r.Size() {
			l.t.Fatal(err)
		}
		for _, f := range m.In(raw) {
			l.t.Errorf("%s has a secret: %s", o.URI, f)
		}
	}
}
