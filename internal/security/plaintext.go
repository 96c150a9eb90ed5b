package security

import (
	"errors"
	"net"
	"strings"

	"github.com/firn-project/firn/commit"
)

// Loopback says whether an address, host:port, can only be reached from this
// machine.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	return err == nil && LoopbackHost(host)
}

// LoopbackHost says whether a host is this machine by its name or address alone.
func LoopbackHost(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// CheckListen refuses plaintext on an address that other machines reach, unless it
// is allowed. warning is what must be said at start; empty when all is well.
func CheckListen(addr string, encrypted, allowed bool) (warning string, err error) {
	switch {
	case encrypted || Loopback(addr):
		return "", nil
	case allowed:
		return "plaintext on an address that other machines reach: tokens and rows can be read and changed on the way", nil
	}
	return "", &commit.Error{
		Code: commit.CodePlaintext, Op: "listen on", Object: addr,
		Cause: errors.New("without TLS only a loopback address can be listened on"),
		Hint:  "Give --tls-cert and --tls-key, listen on 127.0.0.1, or say --allow-plaintext on a network that you trust.",
	}
}

// CheckDial refuses to dial another machine in plaintext, unless it is allowed.
func CheckDial(addr string, encrypted, allowed bool) error {
	if encrypted || allowed || Loopback(addr) {
		return nil
	}
	return &commit.Error{
		Code: commit.CodePlaintext, Op: "connect to", Object: addr,
		Cause: errors.New("without TLS only a loopback address is connected to"),
		Hint:  "Give --tls-ca (or --tls, for a certificate that the system trusts), or say --allow-plaintext on a network that you trust.",
	}
}
