package engine

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/plan"
)

// listed is how many rejected rows are told one by one.
const listed = 10

// Reject is a row that could not be read.
type Reject struct {
	// File is the location as the plan names it, Line counts from 1.
	File string
	Line int64
	// Column is the name of the first bad column, Text the row as it stands in
	// the file, Reason what is wrong with it.
	Column, Text, Reason string
}

// String is one line: file, line, column, reason, text.
func (r Reject) String() string {
	s := fmt.Sprintf("%s:%d: ", r.File, r.Line)
	if r.Column != "" {
		s += "column " + r.Column + ": "
	}
	s += r.Reason
	if r.Text != "" {
		s += ": " + r.Text
	}
	return s
}

// rejectOptions make DuckDB leave bad rows out and remember them. It remembers
// enough to know that there are too many and no more.
func rejectOptions(opts map[string]string, limit int64) {
	if !countsRejects(opts) {
		return
	}
	opts["store_rejects"] = "true"
	opts["rejects_limit"] = strconv.FormatInt(max(limit, 0)+listed, 10)
}

// countsRejects says whether a CSV source's bad rows are left out and counted.
// Not if the statement itself tells to ignore them; and not with union_by_name,
// where DuckDB can't: the first bad row is then an error.
func countsRejects(opts map[string]string) bool {
	return opts["ignore_errors"] == "" && !byName(opts)
}

// rejects counts the rows that CSV scans left out and lists the first ones. A
// row with several bad columns, or read by several scans of a query, counts once.
func (s *session) rejects(ctx context.Context) (int64, []Reject, error) {
	const bad = `SELECT s.file_path, e.line, e.column_name, e.csv_line, e.error_message, e.error_type::VARCHAR AS error_type, e.column_idx
		FROM reject_errors e JOIN reject_scans s USING (scan_id, file_id)`
	count, err := s.db.Strings(ctx, "SELECT count(DISTINCT (file_path, line))::VARCHAR FROM ("+bad+")")
	if err != nil {
		return 0, nil, fmt.Errorf("read rejected rows: %w", err)
	}
	n, err := strconv.ParseInt(count[0][0], 10, 64)
	if err != nil || n == 0 {
		return 0, nil, err
	}
	rows, err := s.db.Strings(ctx, "SELECT file_path, line::VARCHAR, column_name, csv_line, error_message FROM ("+bad+
		") QUALIFY row_number() OVER (PARTITION BY file_path, line ORDER BY column_idx) = 1 ORDER BY file_path, line LIMIT "+strconv.Itoa(listed))
	if err != nil {
		return 0, nil, fmt.Errorf("read rejected rows: %w", err)
	}
	list := make([]Reject, len(rows))
	for i, r := range rows {
		line, err := strconv.ParseInt(r[1], 10, 64)
		if err != nil {
			return 0, nil, fmt.Errorf("read rejected rows: %w", err)
		}
		file := r[0]
		if name, ok := s.names[file]; ok {
			file = name
		}
		list[i] = Reject{File: file, Line: line, Column: r[2], Text: oneLine(r[3]), Reason: reason(r[4])}
	}
	return n, list, nil
}

func reason(msg string) string {
	if _, rest, ok := strings.Cut(msg, `". Could not`); ok && strings.HasPrefix(msg, "Error when converting column") {
		msg = "could not" + rest
	}
	return strings.TrimSuffix(oneLine(msg), ".")
}

// oneLine cuts a text to what fits into a message.
func oneLine(s string) string {
	const most = 200
	s = strings.TrimSpace(strings.ToValidUTF8(s, "\uFFFD"))
	s = strings.NewReplacer("\r\n", `\n`, "\n", `\n`, "\t", `\t`).Replace(s)
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return s
}

// tooMany tells that more rows were rejected than allowed.
func tooMany(n, limit int64, list []Reject, sources []plan.Source) error {
	lines := make([]string, len(list))
	for i, r := range list {
		lines[i] = r.String()
	}
	count := strconv.FormatInt(n, 10)
	if n >= limit+listed {
		count = "at least " + count
	}
	cause := fmt.Errorf("%s rows can't be read, %d are allowed:\n  %s", count, limit, strings.Join(lines, "\n  "))
	return &commit.Error{
		Code: commit.CodeRejectedRows, Op: "read source", Object: fileNames(sources), Cause: cause,
		Hint: "Correct the rows, or leave them out with --reject-limit N.",
	}
}
