package answers_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/answers"
)

var asked = plan.ProbeRequest{Sources: []plan.Source{
	{
		View: []string{"v"}, Kind: plan.SourceParquet, Storage: map[string]string{"s3.region": "r"},
		Patterns: []string{"s3://land/in/*.parquet", "s3://land/deep/**/x.parquet", "file:///srv/in/[ab]?.csv", "/srv/odd[1].csv", "rel/*.csv"},
	},
	{
		View: []string{"lake", "air", "t"}, Kind: plan.SourceTable, Table: commit.TableName{Catalog: "lake", Name: "t"},
		Files: []plan.SourceFile{{Path: "s3://lake/t/data/1.parquet"}},
	},
}}

// answer is what an honest executor says, changed.
func answer(edit func(*plan.ProbeResult)) plan.ProbeResult {
	var r plan.ProbeResult
	raw, err := json.Marshal(plan.ProbeResult{Sources: asked.Sources, Columns: []plan.Column{{Name: "a", Type: "BIGINT"}}, RowWise: true})
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	if err != nil {
		panic(err)
	}
	r.Sources[0].Files = []plan.SourceFile{{Path: "s3://land/in/1.parquet", Size: 10, Rows: 5, RowGroups: []plan.RowGroup{{Rows: 5, Bytes: 9}}}}
	r.Sources[0].Columns = r.Columns
	edit(&r)
	return r
}

// TestProbeFiles: files are taken that a pattern stands for, and no others.
func TestProbeFiles(t *testing.T) {
	for _, path := range []string{
		"s3://land/in/1.parquet", "s3://land/deep/x.parquet", "s3://land/deep/a/b/x.parquet", "/srv/in/a1.csv", "/srv/odd[1].csv", "/srv/odd1.csv", "/anywhere/rel/1.csv",
	} {
		if _, err := answers.Probe(asked, answer(func(r *plan.ProbeResult) { r.Sources[0].Files[0].Path = path })); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, path := range []string{
		"", "s3://land/in/a/1.parquet", "s3://land/in/1.csv", "s3://land/in/../x.parquet", "s3://lake/t/metadata/v1.json", "S3://land/in/1.parquet",
		"s3://land/deep/a/y.parquet", "/srv/in/c1.csv", "/srv/in/../in/a1.csv", "/etc/passwd", "file:///srv/in/a1.csv", "rel/1.csv", "/x/rel/a/1.csv",
		"/srv/in/a1.csv\n", "s3://land/in/1.parquet?x",
	} {
		_, err := answers.Probe(asked, answer(func(r *plan.ProbeResult) { r.Sources[0].Files[0].Path = path }))
		if commit.CodeOf(err) != commit.CodeProbeRefused {
			t.Errorf("%q is taken: %v", path, err)
		}
	}
}

// TestProbeAnswersOnlyWhatWasAsked: nothing else of an answer is used.
func TestProbeAnswersOnlyWhatWasAsked(t *testing.T) {
	got, err := answers.Probe(asked, answer(func(r *plan.ProbeResult) {
		s := &r.Sources[0]
		s.Kind, s.Table, s.View, s.Patterns = plan.SourceTable, commit.TableName{Catalog: "lake", Name: "secret"}, []string{"w"}, []string{"s3://lake/*"}
		s.Storage, s.Upload, s.NameMapping = map[string]string{"s3.endpoint": "http://elsewhere"}, &plan.Upload{ID: "u"}, map[int][]string{1: {"x"}}
		r.Sources[1].Files = []plan.SourceFile{{Path: "s3://lake/t/metadata/v1.json"}}
		r.Sources[1].Columns = []plan.Column{{Name: "x", Type: "INTEGER"}}
		r.Why = strings.Repeat("x", 1<<20)
	}))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Why) > 2<<10 {
		t.Errorf("%d bytes of a reason are kept", len(got.Why))
	}
	want := answer(func(r *plan.ProbeResult) { r.Why = got.Why })
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestHostileProbes(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*plan.ProbeResult)
		rule string
	}{
		"a source less": {func(r *plan.ProbeResult) { r.Sources = r.Sources[:1] }, "each source once"},
		"a source more": {func(r *plan.ProbeResult) { r.Sources = append(r.Sources, r.Sources[0]) }, "each source once"},
		"another file":  {func(r *plan.ProbeResult) { r.Sources[0].Files[0].Path = "s3://lake/t/metadata/v1.json" }, "only files that were asked for"},
		"a slice":       {func(r *plan.ProbeResult) { r.Sources[0].Files[0].End = 1 }, "no slices"},
		"deletes":       {func(r *plan.ProbeResult) { r.Sources[0].Files[0].PositionDeletes = []string{"s3://lake/x"} }, "no deletes"},
		"equality deletes": {func(r *plan.ProbeResult) {
			r.Sources[0].Files[0].EqualityDeletes = []plan.EqualityDelete{{Path: "s3://lake/x"}}
		}, "no deletes"},
		"a negative size": {func(r *plan.ProbeResult) { r.Sources[0].Files[0].Size = -1 }, "absurd"},
		"negative rows":   {func(r *plan.ProbeResult) { r.Sources[0].Files[0].Rows = -2 }, "absurd"},
		"a sum that flows over": {func(r *plan.ProbeResult) {
			r.Sources[0].Files[0].RowGroups = []plan.RowGroup{{Rows: 1 << 62}, {Rows: 1 << 62}}
		}, "absurd"},
		"many columns":             {func(r *plan.ProbeResult) { r.Columns = make([]plan.Column, 1<<17) }, "at most"},
		"many columns of a source": {func(r *plan.ProbeResult) { r.Sources[0].Columns = make([]plan.Column, 1<<17) }, "at most"},
	} {
		_, err := answers.Probe(asked, answer(c.edit))
		if commit.CodeOf(err) != commit.CodeProbeRefused || !strings.Contains(err.Error(), c.rule) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzProbe: whatever an executor answers to a probe, no file comes out that wasn't
// asked for, and nothing else of a source than it may say.
func FuzzProbe(f *testing.F) {
	for _, path := range []string{"s3://land/in/1.parquet", "/srv/in/a1.csv", "/etc/passwd", "/x/rel/../../etc/1.csv"} {
		raw, err := json.Marshal(answer(func(r *plan.ProbeResult) { r.Sources[0].Files[0].Path = path }))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var r plan.ProbeResult
		if json.Unmarshal(raw, &r) != nil {
			return
		}
		got, err := answers.Probe(asked, r)
		if err != nil {
			return
		}
		for _, f := range got.Sources[0].Files {
			if strings.Contains(f.Path, "/../") || !strings.HasPrefix(f.Path, "s3://land/") && !strings.HasPrefix(f.Path, "/srv/") && !strings.Contains(f.Path, "/rel/") {
				t.Errorf("%q is taken", f.Path)
			}
		}
		if d := cmp.Diff(asked.Sources[1], got.Sources[1]); d != "" {
			t.Error(d)
		}
	})
}
