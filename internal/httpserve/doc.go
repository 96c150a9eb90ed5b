// Package httpserve serves a handler over HTTP with the bounds on time and size that
// all of Firn's HTTP listeners have.
package httpserve
