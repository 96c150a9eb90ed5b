// Package probe finds out what a catalog does when it's asked for what Firn's
// commit protocol builds on: whether it refuses stale requests and how, and
// whether it gives back what was written. It works in a namespace and a table of
// its own, which it makes and removes, and judges every answer by what the table
// shows afterwards: catalogs in use have answered 200 for a commit that they
// didn't do, and 400 or 500 for a conflict.
package probe
