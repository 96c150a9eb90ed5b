package commit_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/firn-project/firn/commit"
)

const prefix = "s3://b/t/data/j-1/"

func file(name string) commit.File {
	return commit.File{
		Path: prefix + name, Format: "PARQUET", Attempt: "a-1", SchemaID: 3, SpecID: 4, Rows: 10, Size: 1000,
		Partition:   []commit.PartitionValue{{FieldID: 1000, Value: []byte{1}}, {FieldID: 1001, Null: true}},
		ColumnSizes: map[int]int64{1: 50, 2: 60}, ValueCounts: map[int]int64{1: 10, 2: 25}, NullCounts: map[int]int64{1: 10, 2: 20},
		NaNCounts: map[int]int64{2: 1}, Lower: map[int][]byte{2: {}}, Upper: map[int][]byte{2: {0xff}}, SplitOffsets: []int64{4, 500},
	}
}

func spec(files ...commit.File) commit.UnitSpec {
	return commit.UnitSpec{
		Namespace: "ns", Key: "k", JobID: "j-1", Table: commit.TableName{Catalog: "lake", Namespace: []string{"air"}, Name: "t"},
		TableUUID: "u", Operation: commit.OperationAppend, SchemaID: 3, SpecID: 4, Prefix: prefix, Tasks: 2, Files: files,
	}
}

func TestNewUnit(t *testing.T) {
	a, b := file("1-0-a-1-0.parquet"), file("1-0-a-1-1.parquet")
	b.Rows, b.Size = 5, 7
	files := []commit.File{b, a}
	u := commit.NewUnit(spec(files...))
	if u.Branch != commit.MainBranch || u.Rows != 15 || u.Bytes != 1007 || u.Files.Path(0) != a.Path {
		t.Errorf("%+v", u)
	}
	if files[0].Path != b.Path {
		t.Error("the caller's files were sorted")
	}
	if v := commit.NewUnit(spec(a, b)); v.Digest != u.Digest || v.Token != u.Token {
		t.Error("the order of the files must not matter")
	}
	if want := commit.NewToken(commit.TokenInput{Namespace: "ns", Key: "k", TableUUID: "u", Branch: "main"}); u.Token != want {
		t.Errorf("token %s, want %s", u.Token, want)
	}
	s := spec(a, b)
	s.JobID, s.Key = "j-2", "k2"
	if v := commit.NewUnit(s); v.Digest != u.Digest || v.Token == u.Token {
		t.Error("the digest is of the content, the token of the key")
	}
}

func TestTokenAndDigestAreStable(t *testing.T) {
	u := commit.NewUnit(spec(file("1-0-a-1-0.parquet")))
	// These stand in tables: a change makes old commits unknown.
	if got := u.Token.String(); got != goldenToken {
		t.Errorf("token %s", got)
	}
	if got := u.Digest.String(); got != goldenDigest {
		t.Errorf("digest %s", got)
	}
	if p, err := commit.ParseToken(u.Token.String()); err != nil || p != u.Token {
		t.Errorf("%v %v", p, err)
	}
	if p, err := commit.ParseDigest(u.Digest.String()); err != nil || p != u.Digest {
		t.Errorf("%v %v", p, err)
	}
	if s := u.Token.String(); s[14] != '8' || !strings.ContainsRune("89ab", rune(s[19])) {
		t.Errorf("%s isn't a UUID of version 8", s)
	}
	for _, bad := range []string{"", "x", strings.Repeat("0", 36), u.Token.String() + "0", strings.Replace(u.Token.String(), u.Token.String()[:1], "g", 1)} {
		if _, err := commit.ParseToken(bad); err == nil {
			t.Errorf("token %q is read", bad)
		}
		if _, err := commit.ParseDigest(bad); err == nil {
			t.Errorf("digest %q is read", bad)
		}
	}
}

func TestTokenInputsDoNotRunIntoEachOther(t *testing.T) {
	seen := map[commit.Token]commit.TokenInput{}
	for _, in := range []commit.TokenInput{
		{},
		{Namespace: "ab"},
		{Key: "ab"},
		{Namespace: "a", Key: "b"},
		{TableUUID: "ab"},
		{Branch: "ab"},
		{Unit: 1},
		{Key: "a", TableUUID: "b"},
		{Namespace: "ab", Unit: 1},
	} {
		tok := commit.NewToken(in)
		if old, ok := seen[tok]; ok {
			t.Errorf("%+v and %+v have one token", old, in)
		}
		seen[tok] = in
	}
}

func TestDigestCoversTheContent(t *testing.T) {
	base := commit.NewUnit(spec(file("1-0-a-1-0.parquet"))).Digest
	for name, change := range map[string]func(*commit.UnitSpec, *commit.File){
		"table":     func(s *commit.UnitSpec, _ *commit.File) { s.TableUUID = "v" },
		"branch":    func(s *commit.UnitSpec, _ *commit.File) { s.Branch = "b" },
		"schema":    func(s *commit.UnitSpec, _ *commit.File) { s.SchemaID++ },
		"spec":      func(s *commit.UnitSpec, _ *commit.File) { s.SpecID++ },
		"operation": func(s *commit.UnitSpec, _ *commit.File) { s.Operation = "overwrite" },
		"path":      func(_ *commit.UnitSpec, f *commit.File) { f.Path += "x" },
		"attempt":   func(_ *commit.UnitSpec, f *commit.File) { f.Attempt = "a-2" },
		"rows":      func(_ *commit.UnitSpec, f *commit.File) { f.Rows++ },
		"size":      func(_ *commit.UnitSpec, f *commit.File) { f.Size++ },
		"null":      func(_ *commit.UnitSpec, f *commit.File) { f.Partition[0].Null = true },
		"value":     func(_ *commit.UnitSpec, f *commit.File) { f.Partition[0].Value = []byte{2} },
		"not null":  func(_ *commit.UnitSpec, f *commit.File) { f.Partition[1].Null = false },
		"counts":    func(_ *commit.UnitSpec, f *commit.File) { f.NullCounts[1]-- },
		"moved":     func(_ *commit.UnitSpec, f *commit.File) { f.NaNCounts, f.NullCounts = f.NullCounts, f.NaNCounts },
		"bounds":    func(_ *commit.UnitSpec, f *commit.File) { f.Lower, f.Upper = f.Upper, f.Lower },
		"no bound":  func(_ *commit.UnitSpec, f *commit.File) { delete(f.Lower, 2) },
		"splits":    func(_ *commit.UnitSpec, f *commit.File) { f.SplitOffsets = f.SplitOffsets[:1] },
		"sort":      func(_ *commit.UnitSpec, f *commit.File) { f.SortOrderID = 1 },
		"format":    func(_ *commit.UnitSpec, f *commit.File) { f.Format = "ORC" },
	} {
		f := file("1-0-a-1-0.parquet")
		s := spec()
		change(&s, &f)
		s.Files = []commit.File{f}
		if commit.NewUnit(s).Digest == base {
			t.Errorf("%s doesn't change the digest", name)
		}
	}
}

func TestVerify(t *testing.T) {
	good := spec(file("1-0-a-1-0.parquet"), file("month=2001-01/name=a%2Fb%20c/1-0-a-1-1.parquet"), file("x=.../1-1-a-1-0.parquet"))
	if err := commit.Verify(commit.NewUnit(good), commit.Facts{Attempts: []string{"a-1", "a-2"}}); err != nil {
		t.Errorf("a good unit: %v", err)
	}
	if err := commit.Verify(commit.NewUnit(spec()), commit.Facts{Attempts: []string{"a-1", "a-2"}}); err != nil {
		t.Errorf("an empty unit: %v", err)
	}
	const ok = "1-0-a-1-0.parquet"
	for name, c := range map[string]struct {
		change func(f *commit.File)
		rule   string
	}{
		"other job":         {func(f *commit.File) { f.Path = "s3://b/t/data/j-2/" + ok }, "under the job's prefix"},
		"other bucket":      {func(f *commit.File) { f.Path = "s3://c/t/data/j-1/" + ok }, "under the job's prefix"},
		"the prefix itself": {func(f *commit.File) { f.Path = prefix }, "under the job's prefix"},
		"empty":             {func(f *commit.File) { f.Path = "" }, "under the job's prefix"},
		"steps up":          {func(f *commit.File) { f.Path = prefix + "../j-2/" + ok }, "steps up"},
		"stands":            {func(f *commit.File) { f.Path = prefix + "./" + ok }, "steps up"},
		"escaped":           {func(f *commit.File) { f.Path = prefix + "%2e%2e/" + ok }, "steps up"},
		"escaped slash":     {func(f *commit.File) { f.Path = prefix + "..%2Fj-2%2f" + ok }, "steps up"},
		"in a value":        {func(f *commit.File) { f.Path = prefix + "a=x%2F..%2F..%2F..%2Fj-2/" + ok }, "steps up"},
		"twice escaped":     {func(f *commit.File) { f.Path = prefix + "%252E%252e/" + ok }, "steps up"},
		"escaped backslash": {func(f *commit.File) { f.Path = prefix + "..%5C" + ok }, "steps up"},
		"backslash":         {func(f *commit.File) { f.Path = prefix + `..\` + ok }, "take apart"},
		"query":             {func(f *commit.File) { f.Path = prefix + "x?" + ok }, "take apart"},
		"fragment":          {func(f *commit.File) { f.Path = prefix + "x#" + ok }, "take apart"},
		"newline":           {func(f *commit.File) { f.Path = prefix + "x\n" + ok }, "take apart"},
		"zero":              {func(f *commit.File) { f.Path = prefix + "x\x00" + ok }, "take apart"},
		"empty part":        {func(f *commit.File) { f.Path = prefix + "x//" + ok }, "empty part"},
		"a directory":       {func(f *commit.File) { f.Path = prefix + ok + "/" }, "empty part"},
		"leading slash":     {func(f *commit.File) { f.Path = prefix + "/" + ok }, "empty part"},
		"other attempt":     {func(f *commit.File) { f.Attempt = "a-2" }, "part of the file's name"},
		"no attempt":        {func(f *commit.File) { f.Attempt = "" }, "part of the file's name"},
		"loser":             {func(f *commit.File) { f.Attempt = "a-3"; f.Path = prefix + "1-0-a-3-0.parquet" }, "only accepted attempts"},
		"twice":             {func(f *commit.File) { f.Path = prefix + "1-0-a-1-9.parquet" }, "unique"},
		"format":            {func(f *commit.File) { f.Format = "ORC" }, "Parquet"},
		"no bytes":          {func(f *commit.File) { f.Size = 0 }, "isn't empty"},
		"negative size":     {func(f *commit.File) { f.Size = -1 }, "isn't empty"},
		"negative rows":     {func(f *commit.File) { f.Rows = -1 }, "negative"},
		"schema":            {func(f *commit.File) { f.SchemaID = 9 }, "unit's schema"},
		"spec":              {func(f *commit.File) { f.SpecID = 9 }, "unit's schema"},
		"sort order":        {func(f *commit.File) { f.SortOrderID = -1 }, "negative"},
		"nulls":             {func(f *commit.File) { f.NullCounts[1] = 11 }, "as many nulls"},
		"nulls of rows":     {func(f *commit.File) { f.NullCounts[9] = 11 }, "as many nulls"},
		"NaNs":              {func(f *commit.File) { f.NaNCounts[2] = 26 }, "as many nulls"},
		"negative count":    {func(f *commit.File) { f.ValueCounts[1] = -1 }, "negative"},
		"negative sizes":    {func(f *commit.File) { f.ColumnSizes[1] = -1 }, "negative"},
		"partition twice":   {func(f *commit.File) { f.Partition[1].FieldID = 1000 }, "one value"},
		"splits":            {func(f *commit.File) { f.SplitOffsets = []int64{4, 4} }, "ascend"},
		"splits outside":    {func(f *commit.File) { f.SplitOffsets = []int64{4, 1000} }, "ascend"},
		"splits negative":   {func(f *commit.File) { f.SplitOffsets = []int64{-1} }, "ascend"},
		"overflow":          {func(f *commit.File) { f.Rows = math.MaxInt64 }, "64 bits"},
	} {
		f := file(ok)
		c.change(&f)
		u := commit.NewUnit(spec(f, file("1-0-a-1-9.parquet")))
		err := commit.Verify(u, commit.Facts{Attempts: []string{"a-1", "a-2"}})
		var e *commit.Error
		if !errors.As(err, &e) || e.Reason != commit.ReasonValidation || e.Code != commit.CodeVerification {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !strings.Contains(err.Error(), c.rule) || (e.Object != f.Path && name != "overflow" && name != "empty") {
			t.Errorf("%s: %v doesn't name the file and the rule %q", name, err, c.rule)
		}
	}
}

func TestVerifyTheUnit(t *testing.T) {
	f := file("1-0-a-1-0.parquet")
	g := file("1-1-a-2-0.parquet")
	g.Attempt = "a-2"
	for name, c := range map[string]struct {
		change func(u *commit.Unit)
		facts  commit.Facts
	}{
		"prefix without slash": {func(u *commit.Unit) { u.Prefix = strings.TrimSuffix(u.Prefix, "/") }, commit.Facts{}},
		"no prefix":            {func(u *commit.Unit) { u.Prefix = "" }, commit.Facts{}},
		"a task is missing":    {nil, commit.Facts{Attempts: []string{"a-1"}}},
		"a task twice":         {nil, commit.Facts{Attempts: []string{"a-1", "a-1"}}},
		"an empty attempt":     {nil, commit.Facts{Attempts: []string{"a-1", ""}}},
		"more than tasks":      {func(u *commit.Unit) { u.Tasks = 1 }, commit.Facts{}},
		"rows":                 {func(u *commit.Unit) { u.Rows++ }, commit.Facts{}},
		"bytes":                {func(u *commit.Unit) { u.Bytes-- }, commit.Facts{}},
		"bounds":               {nil, commit.Facts{Bounds: func(commit.File) error { return errors.New("lower above upper") }}},
	} {
		u := commit.NewUnit(spec(f, g))
		if c.change != nil {
			c.change(&u)
		}
		if err := commit.Verify(u, c.facts); commit.ReasonOf(err) != commit.ReasonValidation {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestErrorText(t *testing.T) {
	inner := &commit.Error{Code: commit.CodeConflict, Op: "commit to", Object: "t", Cause: errors.New("why")}
	for want, e := range map[string]*commit.Error{
		"commit to t: why [FIRN-2003]":                  inner,
		"run: commit to t: why [FIRN-2003]":             {Code: commit.CodeConflict, Op: "run", Cause: inner},
		"run: commit to t: why [FIRN-2003] [FIRN-2007]": {Code: commit.CodeUnknown, Op: "run", Cause: inner},
		"run: from afar [FIRN-2007]":                    {Code: commit.CodeUnknown, Op: "run", Cause: errors.New("from afar [FIRN-2007]")},
		"run":                                           {Op: "run"},
	} {
		if e.Error() != want {
			t.Errorf("%q, want %q", e.Error(), want)
		}
	}
	if commit.KindOf(errors.New("x")) != commit.KindFailed || commit.KindOf(inner) != commit.KindConflict {
		t.Error("kinds")
	}
}

func TestEveryCodeIsExplained(t *testing.T) {
	for _, c := range commit.Codes() {
		if c.Title == "" || c.Cause == "" || c.Hint == "" || c.Kind.ExitCode() == 0 {
			t.Errorf("%+v", c)
		}
		number := strings.TrimPrefix(string(c.Code), "FIRN-")
		for _, as := range []string{string(c.Code), number, " " + strings.ToLower(string(c.Code))} {
			if got, ok := commit.Explain(as); !ok || got != c {
				t.Errorf("Explain(%q): %v %v", as, got, ok)
			}
		}
	}
	if _, ok := commit.Explain("FIRN-0000"); ok {
		t.Error("a code that isn't there")
	}
}

const (
	goldenToken  = "46859f8a-1b14-8cf3-8b4f-a13fab6efa58"
	goldenDigest = "a6c5b2eb4f860c8ad7ac756760094d3cd49672a197d871d62b2aaffc006ad803"
)
