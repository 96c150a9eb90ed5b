// Package openwrite is the wire of the open write protocol, by which processes
// that aren't Firn's write data files and have Firn commit them: the messages of
// the Flight actions, the Arrow schema of manifests that only name files, handles
// of manifests, and errors that keep what they know.
//
// docs/reference/write-protocol.md specifies it. What comes from a client or a
// worker is untrusted: everything here that decodes returns an error for bad input
// and never panics.
package openwrite
