// Package binder parses and binds users' queries in a process of its own, so that
// no SQL of a user is ever in DuckDB in the process that holds the catalogs'
// secrets.
//
// The helper is the same program, started with an empty environment, in an empty
// directory, with no open file but its three pipes. What it is asked comes in
// frames on its standard input, what it answers goes out on its standard output:
// the text of a query for its parse tree, a tree for its text, or a query with its
// tables' columns for what binding it gives. Tables are bound as empty ones; what
// has to be looked at in files is an executor's to look at.
//
// A Pool supervises a few helpers. One that crashes, hangs or grows too big fails
// the one statement that it was looking at, and is replaced.
package binder
