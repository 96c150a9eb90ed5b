package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/duckdb"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/plan"
)

// Classes of errors, as a task's status names them.
const (
	ClassRetryable    = "retryable"
	ClassNotRetryable = "not_retryable"
	ClassCancelled    = "cancelled"
)

// Class says what is to be done about an error of a task: whether another
// attempt can help. Errors that nothing is known about are retryable; attempts
// are limited.
func Class(err error) string {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return ClassCancelled
	}
	switch commit.CodeOf(err) {
	case commit.CodeSourceRead:
		return ClassRetryable
	case commit.CodeQueryMemory, commit.CodeEngineBroken:
		return ClassNotRetryable
	case "":
	default:
		if k := commit.KindOf(err); k != commit.KindFailed && k != commit.KindTimeout {
			return ClassNotRetryable
		}
		return ClassRetryable
	}
	if errors.Is(err, objstore.ErrPermission) || errors.Is(err, objstore.ErrNotFound) {
		return ClassNotRetryable
	}
	if e, ok := errors.AsType[*duckdb.Error](err); ok && e.Type != "IO" {
		return ClassNotRetryable
	}
	return ClassRetryable
}

// tell is queryError with the files named as the plan does, not as they were
// staged.
func (s *session) tell(err error, sources []plan.Source) error {
	if read := s.remote.err(); read != nil && err != nil && Class(err) != ClassCancelled {
		return read
	}
	if e, ok := errors.AsType[*duckdb.Error](err); ok && commit.CodeOf(err) == "" {
		msg := e.Message
		for open, name := range s.names {
			if open != name {
				msg = strings.ReplaceAll(msg, open, name)
			}
		}
		err = &duckdb.Error{Type: e.Type, Message: msg}
	}
	return queryError(err, sources)
}

// queryError tells a person what DuckDB said about a query. Cancellation and
// errors told already stay as they are.
func queryError(err error, sources []plan.Source) error {
	if err == nil || Class(err) == ClassCancelled || commit.CodeOf(err) != "" {
		return err
	}
	if errors.Is(err, duckdb.ErrNotSelect) {
		return refused("%v", err)
	}
	e, ok := errors.AsType[*duckdb.Error](err)
	if !ok {
		return err
	}
	out := &commit.Error{Code: commit.CodeQueryFailed, Op: "run query", Cause: &duckdb.Error{Type: e.Type, Message: clean(e.Message)}}
	spill := strings.Contains(e.Message, "max_temp_directory_size") || strings.Contains(e.Message, "failed to offload")
	switch {
	case strings.Contains(e.Message, syscall.ENOSPC.Error()), e.Type == "Out of Memory" && spill:
		out.Code, out.Op = commit.CodeSpillFull, "spill to disk"
		out.Hint = "Free space in the executor's directory (--dir) or give the task more memory (--memory)."
	case e.Type == "Out of Memory" && strings.Contains(e.Message, "bad allocation"):
		// Not the limit of the task was reached, but what the system has.
		out.Code = commit.CodeMachineMemory
		out.Hint = "Give the executor's machine or container more memory, or the executor less of it (--memory, --slots)."
	case e.Type == "Out of Memory":
		out.Code = commit.CodeQueryMemory
		out.Hint = "Give the executor more memory (--memory) or fewer slots (--slots); lists and strings built over a whole table can't be spilled."
	case e.Type == "IO":
		out.Code, out.Op = commit.CodeSourceRead, "read source"
		out.Hint = "Look whether the files are still there and can be read."
	case e.Type == "INTERNAL", e.Type == "FATAL":
		out.Code = commit.CodeEngineBroken
		out.Hint = "This is an error in DuckDB or Firn. Please report it with the statement."
	case strings.HasPrefix(e.Message, "Failed to read file"), e.Type == "Invalid" && hasParquet(sources):
		out.Code, out.Op = commit.CodeBadFile, "read source"
		out.Hint = "A page of the file is damaged. Leave the file out of the pattern or write it again."
	case strings.Contains(e.Message, "CSV Error on Line"), strings.Contains(e.Message, "JSON in file"), strings.Contains(e.Message, "JSON transform error"):
		out.Code, out.Op = commit.CodeRejectedRows, "read source"
		out.Hint = "Correct the file, or read the column as VARCHAR and use TRY_CAST."
	case e.Type == "Conversion", e.Type == "Out of Range":
		out.Hint = "TRY_CAST gives NULL for a value that can't be cast."
	default:
		out.Hint = "Correct the statement."
	}
	if out.Code != commit.CodeSpillFull {
		out.Object = fileNames(sources)
	}
	return out
}

func hasParquet(sources []plan.Source) bool {
	return slices.ContainsFunc(sources, func(s plan.Source) bool {
		return s.Kind == plan.SourceParquet || s.Kind == plan.SourceTable
	})
}

// clean shortens DuckDB's message to what the person can use: without the echo
// of the (rewritten) statement and without advice about DuckDB's own settings.
func clean(msg string) string {
	for _, cut := range []string{"\n\nLINE ", "\nPossible solutions:", "\nPossible fixes:", "\nTry setting ", "\n\n  file = ", "\nPossible Solution:", "\nThis limit was set by"} {
		if head, _, ok := strings.Cut(msg, cut); ok {
			if _, file, found := strings.Cut(msg, "\n  file = "); found && !strings.Contains(head, "file") {
				name, _, _ := strings.Cut(file, "\n")
				head += "\nfile " + name
			}
			msg = head
		}
	}
	return strings.TrimSpace(strings.ReplaceAll(msg, "\n", "; "))
}

// fileNames names the files of sources shortly.
func fileNames(sources []plan.Source) string {
	const most = 3
	var names []string
	n := 0
	for _, s := range sources {
		for _, f := range s.Files {
			if n++; n <= most {
				names = append(names, path.Base(f.Path))
			}
		}
	}
	if n > most {
		names = append(names, fmt.Sprintf("and %d more files", n-most))
	}
	if n == 0 {
		return ""
	}
	return "over " + strings.Join(names, ", ")
}

func refused(format string, args ...any) error {
	return &commit.Error{
		Code: commit.CodeQueryRefused, Op: "check query", Cause: fmt.Errorf(format, args...),
		Hint: "Use a SELECT over tables, files and the table functions that the SQL reference lists.",
	}
}

func badFile(file, why string) error {
	return &commit.Error{
		Code: commit.CodeBadFile, Op: "read file", Object: file, Cause: errors.New(why),
		Hint: "Leave the file out of the pattern or write it again.",
	}
}

// storeError tells what went wrong with reaching a file.
func storeError(file string, err error) error {
	if Class(err) == ClassCancelled || commit.CodeOf(err) != "" {
		return err
	}
	e := &commit.Error{Code: commit.CodeSourceRead, Op: "read file", Object: file, Cause: err, Hint: "Run the statement again."}
	switch {
	case errors.Is(err, objstore.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		e.Code, e.Hint = commit.CodeSourceNotFound, "Check the path; it's read on the executor's machine."
	case errors.Is(err, objstore.ErrPermission), errors.Is(err, fs.ErrPermission):
		e.Code, e.Hint = commit.CodeSourceNotAllowed, "Give the executor's user the right to read the file."
	case errors.Is(err, objstore.ErrFull), errors.Is(err, syscall.ENOSPC):
		e.Code, e.Op, e.Hint = commit.CodeSpillFull, "stage file", "Free space in the executor's directory (--dir)."
	}
	return e
}
