package cluster_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/cluster"
	"github.com/firn-project/firn/internal/config"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"google.golang.org/grpc"
)

// escape is one line of testdata/escapes.txt.
type escape struct{ names, statement string }

// escapes lays out an allowed directory beside a secret one and reads the list
// of statements for them.
func escapes(t *testing.T) (root string, list []escape) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root = filepath.Join(dir, "root")
	out := filepath.Join(dir, "secret", "secret.csv")
	for path, text := range map[string]string{
		out: secret + "\n1\n", filepath.Join(root, "ok.csv"): "a\n1\n", filepath.Join(root, "y=1", "a.csv"): "a\n1\n", root + "-not/secret.csv": secret + "\n1\n",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"link.csv": out, "linkdir": filepath.Dir(out)} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile("testdata/escapes.txt")
	if err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer("$OUT", out, "$ROOT", root)
	for line := range strings.Lines(string(raw)) {
		if names, statement, ok := strings.Cut(line, " | "); ok && !strings.HasPrefix(line, "#") {
			list = append(list, escape{names, fill.Replace(strings.TrimSpace(statement))})
		}
	}
	return root, list
}

// secret is the name of a column of a file that must stay unread.
const secret = "canary_81f2"

// TestClientPlans: a plan that a client made itself gets no further than SQL does.
func TestClientPlans(t *testing.T) {
	root, list := escapes(t)
	_, addr := services(t, root)
	conn, err := grpc.NewClient(addr, wire.DialOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, conn.Close()) })
	rpc := firnpb.NewClientServiceClient(conn)
	out := filepath.Join(filepath.Dir(root), "secret", "secret.csv")
	elsewhere := t.TempDir()
	own := func(src plan.Source) plan.Node {
		src.View = []string{"firn_s0"}
		return &plan.Query{SQL: "SELECT * FROM firn_s0", Sources: []plan.Source{src}, Columns: []plan.Column{{Name: "a", Type: "VARCHAR"}}}
	}
	ok := plan.Source{Kind: plan.SourceCSV, Files: []plan.SourceFile{{Path: root + "/ok.csv"}}, Columns: []plan.Column{{Name: "a", Type: "VARCHAR"}}}
	forged := map[string]struct {
		n    plan.Node
		want string
	}{
		"a table's files":      {own(plan.Source{Kind: plan.SourceTable, Files: []plan.SourceFile{{Path: out}}}), "is a table"},
		"an engine":            {own(plan.Source{Kind: plan.SourceFlightSQL, Flight: &plan.FlightSource{Name: "e"}}), "query of an engine"},
		"an engine's endpoint": {own(plan.Source{Kind: plan.SourceCSV, Flight: &plan.FlightSource{Name: "e"}}), "query of an engine"},
		"a store":              {own(plan.Source{Kind: plan.SourceCSV, Storage: map[string]string{"s3.endpoint": "http://127.0.0.1:1"}}), "settings of a store"},
		"shuffle output":       {&plan.Exchange{Input: &plan.ShuffleRead{}, How: plan.ExchangeSingle, Partitions: 1}, "shuffle"},
		"files anywhere":       {&plan.Write{Input: own(ok), Context: plan.WriteContext{Prefix: "file://" + elsewhere + "/"}}, "no commit takes"},
		"files below a commit's": {&plan.Commit{Input: &plan.Exchange{How: plan.ExchangeSingle, Partitions: 1, Input: &plan.Write{
			Input: own(ok), Context: plan.WriteContext{Prefix: "file://" + elsewhere + "/"},
		}}}, "no commit takes"},
		"a file outside": {own(plan.Source{Kind: plan.SourceCSV, Files: []plan.SourceFile{{Path: out}}}), "outside the directories"},
		"an option": {own(plan.Source{Kind: plan.SourceCSV, Files: ok.Files, Options: map[string]string{
			"header": "true); ATTACH '" + elsewhere + "/x.db' AS x; SELECT (1",
		}}), "argument header"},
		"a type": {own(plan.Source{Kind: plan.SourceUpload, Columns: []plan.Column{{Name: "a", Type: "INT); COPY (SELECT 1) TO '" + elsewhere + "/x.csv'; --"}}}), "of a type"},
	}
	for _, e := range list {
		forged[e.statement] = struct {
			n    plan.Node
			want string
		}{&plan.Query{SQL: e.statement}, ""}
	}
	for name, f := range forged {
		raw, err := plan.Encode(f.n)
		if err != nil {
			t.Fatal(err)
		}
		got := func() error {
			resp, err := rpc.Execute(t.Context(), &firnpb.ExecuteRequest{ProtocolVersion: wire.ProtocolVersion, Physical: raw})
			if err != nil {
				return wire.FromStatus(err)
			}
			stream, err := rpc.WatchJob(t.Context(), &firnpb.JobRequest{JobId: resp.GetJob().GetJobId()})
			if err != nil {
				return err
			}
			for st := resp.GetJob(); ; {
				next, err := stream.Recv()
				if errors.Is(err, io.EOF) {
					return wire.ErrorFromProto(st.GetError())
				}
				if err != nil {
					return err
				}
				st = next
			}
		}()
		if got == nil || !strings.Contains(got.Error(), f.want) || strings.Contains(got.Error(), secret) || commit.KindOf(got) == commit.KindFailed {
			t.Errorf("%s: got %v, want a refusal with %q", name, got, f.want)
		}
	}
	if left, err := os.ReadDir(elsewhere); err != nil || len(left) > 0 {
		t.Errorf("written elsewhere: %v, %v", left, err)
	}
}

// services starts a scheduler and an executor with the settings of services, and
// a client.
func services(t *testing.T, allow ...string) (c *client.Client, addr string) {
	t.Helper()
	dir := t.TempDir()
	s, err := cluster.StartScheduler(t.Context(), cluster.SchedulerConfig{
		Dir: filepath.Join(dir, "s"), LocalAllow: allow, CheckAllFiles: true, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, s.Close(context.WithoutCancel(t.Context()))) })
	x, err := cluster.StartExecutor(t.Context(), "", config.Executor{
		Server: s.Addr(), Listen: "127.0.0.1:0", Dir: filepath.Join(dir, "x"), Slots: 1, Memory: 256 << 20,
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, x.Close(context.WithoutCancel(t.Context()))) })
	if c, err = client.Dial(t.Context(), s.Addr()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, c.Close()) })
	return c, s.Addr()
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// try runs a statement to its end.
func try(t *testing.T, c *client.Client, statement string) error {
	t.Helper()
	res, err := c.Execute(t.Context(), client.Statement{SQL: statement})
	if err != nil || res.Job == nil {
		return err
	}
	for _, err := range res.Job.Rows(t.Context()) {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestEscapes: no statement reads, changes or hides more than its sources. Each is
// refused as somebody's mistake, with a code, by the name of what is refused, and
// without anything of the file that must stay unread.
func TestEscapes(t *testing.T) {
	root, list := escapes(t)
	c, _ := services(t, root)
	if err := try(t, c, "SELECT * FROM read_csv('"+root+"/*.csv') WHERE false"); err == nil {
		t.Error("a pattern that also finds a link out of the directory was read")
	}
	if err := try(t, c, "SELECT * FROM read_csv('"+root+"/ok.csv')"); err != nil {
		t.Fatalf("an allowed file: %v", err)
	}
	if len(list) < 100 {
		t.Fatalf("only %d statements", len(list))
	}
	for _, e := range list {
		err := try(t, c, e.statement)
		switch {
		case err == nil:
			t.Errorf("%s\n  ran", e.statement)
		case commit.CodeOf(err) == "" || commit.KindOf(err) == commit.KindFailed:
			t.Errorf("%s\n  broke instead of being refused: %v", e.statement, err)
		case !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(e.names)):
			t.Errorf("%s\n  isn't refused by the name %q: %v", e.statement, e.names, err)
		case strings.Contains(err.Error(), secret):
			t.Errorf("%s\n  tells what is in the file: %v", e.statement, err)
		}
	}
	// Nothing of all that is left in the slot's engine.
	if err := try(t, c, "SELECT now() > TIMESTAMPTZ '2001-01-01', 1 FROM read_csv('"+root+"/ok.csv')"); err != nil {
		t.Error(err)
	}
}
