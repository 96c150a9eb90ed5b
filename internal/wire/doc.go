// Package wire is the protocol between Firn's parts: the protobuf messages and
// services (firnpb), the Arrow schema of file manifests, and signed tickets.
package wire
