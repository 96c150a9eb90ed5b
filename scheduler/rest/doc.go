// Package rest serves what a scheduler knows over HTTP: /api/v1 with its OpenAPI
// document, /healthz, /readyz and /metrics.
//
// It is another way to what the gRPC service for clients says and does: both call
// the same methods, so they can't differ. Callers are let in by the same tokens and
// certificates. Errors are problem details (RFC 9457) with Firn's codes.
package rest
