// Package wire is the protocol between Firn's parts: the protobuf messages and
// services (firnpb), the Arrow schemas of file manifests and of commit reports,
// signed tickets, and errors that keep what they know on the way.
//
// What comes from an executor or a client is untrusted: everything here that
// decodes returns an error for bad input and never panics.
package wire
