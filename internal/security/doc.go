// Package security decides who may talk to whom: certificates, tokens, and where
// plaintext is allowed.
//
// The scheduler authenticates clients and executors, each by a token or by a
// certificate (Gate). Executors authenticate the scheduler by a control ticket
// that it signs (package wire), whatever the transport, and everybody who reads or
// writes shuffle data by a ticket for just that data. With TLS each side also
// checks the name of whom it dials.
//
// Plaintext and unnamed callers are for the loopback interface. Anything else must
// be asked for, and is said at start.
package security
