package sql

// Parse splits a script at its semicolons and parses each statement. An error
// is a *commit.Error with line and column.
func Parse(text string) ([]Statement, error) { panic("not yet") }

type source struct{}
type shift struct{}

func quoteIfNeeded(s string) string { return s }
