package client_test

import (
	"testing"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
)

func TestPipelineBecomesOneInsert(t *testing.T) {
	c := (&fake{}).serve(t)
	for name, tc := range map[string]struct {
		p    *client.Pipeline
		want string
	}{
		"read and write": {
			c.Pipeline().ReadParquet("/data/it's.parquet").Write("lake.air.t").Append(),
			`INSERT INTO "lake"."air"."t" SELECT * FROM read_parquet('/data/it''s.parquet')`,
		},
		"one step": {
			c.Pipeline().ReadParquet("a", "b").SQL("SELECT x FROM input -- all;\n;").Write("`we``ird`.t").Append().ByName(),
			"INSERT INTO \"we`ird\".\"t\" BY NAME WITH input AS (\nSELECT * FROM read_parquet(['a', 'b'])\n) SELECT * FROM (\nSELECT x FROM input -- all;\n\n)",
		},
		"two steps": {
			c.Pipeline().ReadTable("lake.a.b").SQL("S1 FROM input").SQL("S2 FROM input").Write("t").Append(),
			"INSERT INTO \"t\" WITH input AS (\nWITH input AS (\nSELECT * FROM \"lake\".\"a\".\"b\"\n) SELECT * FROM (\nS1 FROM input\n)\n) SELECT * FROM (\nS2 FROM input\n)",
		},
		"options in order": {
			c.Pipeline().ReadCSV(client.ReadOptions{"header": "true", "delim": "';'"}, "x.csv").Write("t").Append(),
			`INSERT INTO "t" SELECT * FROM read_csv('x.csv', delim = ';', header = true)`,
		},
		"SQL alone": {
			c.Pipeline().SQL("VALUES (1)").Write("t").Append().With(client.Statement{SQL: "ignored", Key: "k"}),
			`INSERT INTO "t" VALUES (1)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := tc.p.Statement()
			if err != nil {
				t.Fatal(err)
			}
			if s.SQL != tc.want {
				t.Errorf("got\n%s\nwant\n%s", s.SQL, tc.want)
			}
			if name == "SQL alone" && s.Key != "k" {
				t.Errorf("key %q", s.Key)
			}
		})
	}
}

func TestPipelineMistakesAreToldByRun(t *testing.T) {
	c := (&fake{}).serve(t)
	for name, p := range map[string]*client.Pipeline{
		"nothing read":  c.Pipeline().Write("t").Append(),
		"not written":   c.Pipeline().SQL("SELECT 1"),
		"not appended":  c.Pipeline().SQL("SELECT 1").Write("t"),
		"no path":       c.Pipeline().ReadParquet().Write("t").Append(),
		"empty SQL":     c.Pipeline().SQL(" ; ").Write("t").Append(),
		"two sources":   c.Pipeline().ReadParquet("a").ReadParquet("b").Write("t").Append(),
		"bad target":    c.Pipeline().SQL("SELECT 1").Write(`a."b"c`).Append(),
		"bad source":    c.Pipeline().ReadTable("a.").Write("t").Append(),
		"unclosed name": c.Pipeline().SQL("SELECT 1").Write("`a").Append(),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := p.Run(t.Context()); commit.CodeOf(err) != commit.CodeBadCall {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestPipelineRuns(t *testing.T) {
	f := &fake{execute: jobAnswer, watch: statuses(committed())}
	s, err := f.serve(t).Pipeline().SQL("SELECT 1").Write("lake.air.t").Append().Run(t.Context())
	if err != nil || s.Report.Rows != 3 || s.Report.Table.Name != "t" {
		t.Errorf("got %+v, %v", s, err)
	}
}
