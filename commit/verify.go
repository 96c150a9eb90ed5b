package commit

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
)

// Facts is what the scheduler knows of a unit by itself, to hold the manifests
// against. Manifests come from executors, and an executor may be broken or
// hostile: it can lose its own job and nothing more.
type Facts struct {
	// Attempts are the accepted attempts of the final stage, one for each
	// task; nil when they aren't known, and then any attempt may have written
	// a file.
	Attempts []string
	// Bounds checks what only the format can tell of a file: that lower bounds
	// aren't above upper ones, that partition values fit the bounds. nil
	// checks nothing.
	Bounds func(File) error
}

// Verify checks the files of a unit against each other and against the facts
// (docs/explanation/design.md, verification before commit). The error is a
// *Error with ReasonValidation that names the file and the rule.
//
// What it can't check without the table is checked by Metadata.CheckUnit, and
// what needs the files themselves by the caller.
func Verify(u Unit, facts Facts) error {
	if u.Prefix == "" || !strings.HasSuffix(u.Prefix, "/") {
		return Misfit(u, "", "the job's data prefix must end in a slash", u.Prefix)
	}
	accepted := make(map[string]bool, len(facts.Attempts))
	for _, a := range facts.Attempts {
		if a == "" || accepted[a] {
			return Misfit(u, "", "every task has exactly one accepted attempt", fmt.Sprintf("attempt %q stands twice or is empty", a))
		}
		accepted[a] = true
	}
	if facts.Attempts != nil && len(facts.Attempts) != u.Tasks {
		return Misfit(u, "", "every task has exactly one accepted attempt", fmt.Sprintf("%d attempts for %d tasks", len(facts.Attempts), u.Tasks))
	}
	last := ""
	writers := map[string]bool{}
	var rows, bytes int64
	for i, f := range u.Files.All() {
		if i > 0 && f.Path == last { // they are sorted
			return Misfit(u, f.Path, "paths are unique", "the path stands twice")
		}
		last = f.Path
		if rule, why := CheckPath(u.Prefix, f); rule != "" {
			return Misfit(u, f.Path, rule, why)
		}
		if facts.Attempts != nil && !accepted[f.Attempt] {
			return Misfit(u, f.Path, "only accepted attempts' files are committed", fmt.Sprintf("attempt %q was not accepted", f.Attempt))
		}
		writers[f.Attempt] = true
		if rule, why := checkFile(u, f); rule != "" {
			return Misfit(u, f.Path, rule, why)
		}
		if facts.Bounds != nil {
			if err := facts.Bounds(f); err != nil {
				return Misfit(u, f.Path, "bounds and partition values fit together", err.Error())
			}
		}
		if rows > math.MaxInt64-f.Rows || bytes > math.MaxInt64-f.Size {
			return Misfit(u, f.Path, "sums fit into 64 bits", "the sum of rows or bytes overflows")
		}
		rows, bytes = rows+f.Rows, bytes+f.Size
	}
	switch {
	case len(writers) > u.Tasks:
		return Misfit(u, "", "every task is covered once", fmt.Sprintf("files of %d attempts for %d tasks", len(writers), u.Tasks))
	case rows != u.Rows || bytes != u.Bytes:
		return Misfit(u, "", "the unit's sums are those of its files",
			fmt.Sprintf("%d rows and %d bytes, but the files have %d and %d", u.Rows, u.Bytes, rows, bytes))
	}
	return nil
}

// CheckPath says which rule a file's path breaks, and why; empty when none: it lies under the prefix in every reading of it, also by
// something that decodes percent escapes or takes a backslash for a slash, and
// carries its attempt's id.
func CheckPath(prefix string, f File) (rule, why string) {
	rest, ok := strings.CutPrefix(f.Path, prefix)
	if !ok || rest == "" {
		return "all files lie under the job's prefix", "the prefix is " + prefix
	}
	for _, r := range rest {
		if r < 0x20 || r == 0x7f || r == '?' || r == '#' || r == '\\' {
			return "paths hold no character that readers take apart", fmt.Sprintf("character %q", r)
		}
	}
	for decoded, next := rest, ""; decoded != next; decoded, next = unescape(decoded), decoded {
		for seg := range strings.SplitSeq(strings.ReplaceAll(decoded, `\`, "/"), "/") {
			if seg == ".." || seg == "." {
				return "no path steps up or stands still", fmt.Sprintf("%q, read as %q", rest, decoded)
			}
		}
	}
	if strings.Contains("/"+rest+"/", "//") {
		return "no path has an empty part", rest
	}
	name := rest[strings.LastIndexByte(rest, '/')+1:]
	if f.Attempt == "" || !strings.Contains("-"+name, "-"+f.Attempt+"-") {
		return "the attempt's id is part of the file's name", fmt.Sprintf("attempt %q", f.Attempt)
	}
	return "", ""
}

// unescape decodes the percent escapes that there are and leaves the rest.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := hex.DecodeString(s[i+1 : i+3]); err == nil {
				b.Write(c)
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// checkFile checks the numbers of one file.
func checkFile(u Unit, f File) (rule, why string) {
	switch {
	case f.Format != "PARQUET":
		return "data files are Parquet", fmt.Sprintf("format %q", f.Format)
	case f.Size <= 0:
		return "a file isn't empty", fmt.Sprintf("%d bytes", f.Size)
	case f.Rows < 0:
		return "counts aren't negative", fmt.Sprintf("%d rows", f.Rows)
	case f.SchemaID != u.SchemaID || f.SpecID != u.SpecID:
		return "files have the unit's schema and partition spec",
			fmt.Sprintf("schema %d and spec %d instead of %d and %d", f.SchemaID, f.SpecID, u.SchemaID, u.SpecID)
	case f.SortOrderID < 0:
		return "counts aren't negative", fmt.Sprintf("sort order %d", f.SortOrderID)
	}
	if rule, why := checkCounts(f); rule != "" {
		return rule, why
	}
	fields := make(map[int]bool, len(f.Partition))
	for _, p := range f.Partition {
		if fields[p.FieldID] {
			return "a partition field has one value", fmt.Sprintf("field %d stands twice", p.FieldID)
		}
		fields[p.FieldID] = true
	}
	prev := int64(-1)
	for _, o := range f.SplitOffsets {
		if o <= prev || o >= f.Size {
			return "split offsets ascend within the file", fmt.Sprintf("offset %d after %d in %d bytes", o, prev, f.Size)
		}
		prev = o
	}
	return "", ""
}

// checkCounts: a field has at most as many nulls and NaNs as values. Values
// inside lists may outnumber rows, so rows bound only fields without a count.
func checkCounts(f File) (rule, why string) {
	for name, counts := range map[string]map[int]int64{
		"column sizes": f.ColumnSizes, "value counts": f.ValueCounts, "null counts": f.NullCounts, "NaN counts": f.NaNCounts,
	} {
		for id, n := range counts {
			if n < 0 {
				return "counts aren't negative", fmt.Sprintf("%s of field %d: %d", name, id, n)
			}
		}
	}
	for name, counts := range map[string]map[int]int64{"nulls": f.NullCounts, "NaNs": f.NaNCounts} {
		for id, n := range counts {
			values, ok := f.ValueCounts[id]
			if !ok {
				values = f.Rows
			}
			if n > values {
				return "a field has at most as many nulls as values", fmt.Sprintf("field %d has %d %s and %d values", id, n, name, values)
			}
		}
	}
	return "", ""
}

// Misfit is the error of a unit, or of one of its files, that isn't what it must
// be to be committed: it names the file and the rule, and refuses the unit
// (ReasonValidation). file is empty when the unit itself is meant.
func Misfit(u Unit, file, rule, why string) error {
	op, object := "verify the files for", u.Table.String()
	if file != "" {
		op, object = "verify file", file
	}
	return &Error{
		Code: CodeVerification, Op: op, Object: object, Reason: ReasonValidation,
		Cause: errors.New(why + " (rule: " + rule + ")"),
		Tried: "nothing was committed",
		Hint:  "Run the statement again, or begin the write again under its key. If it comes again, report the message, and take the executor that wrote the file out of service, or correct what the engine hands in.",
	}
}
