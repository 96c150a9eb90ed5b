package security

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/firn-project/firn/commit"
)

// DialTLS is the gRPC option for connections under c; nil leaves them in
// plaintext. It stands after wire.DialOptions.
func DialTLS(c *tls.Config) []grpc.DialOption {
	if c == nil {
		return nil
	}
	return []grpc.DialOption{grpc.WithTransportCredentials(named{credentials.NewTLS(c)})}
}

// DialToken is the gRPC option that sends a token with each call; none for an
// empty one.
func DialToken(token string) []grpc.DialOption {
	if token == "" {
		return nil
	}
	return []grpc.DialOption{grpc.WithPerRPCCredentials(bearer(token))}
}

// bearer is a token as gRPC sends it. Where plaintext is allowed is CheckDial's
// to say, so it asks for no transport of its own.
type bearer string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (bearer) RequireTransportSecurity() bool { return false }

// named is TLS whose failed handshakes say what to do.
type named struct {
	credentials.TransportCredentials
}

// ClientHandshake implements credentials.TransportCredentials.
func (n named) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, info, err := n.TransportCredentials.ClientHandshake(ctx, authority, conn)
	if err != nil {
		return c, info, fmt.Errorf("%w%s", err, advice(err))
	}
	return told{c}, info, nil
}

// told is a connection whose failed writes give the reason that the other side
// sent: under TLS 1.3 it refuses a certificate after the handshake, when this side
// is writing already.
type told struct{ net.Conn }

// Write implements net.Conn.
func (c told) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err == nil {
		return n, nil
	}
	const patience = 100 * time.Millisecond
	if derr := c.SetReadDeadline(time.Now().Add(patience)); derr == nil {
		if _, rerr := c.Read(make([]byte, 1)); rerr != nil && strings.Contains(rerr.Error(), "remote error: tls:") {
			return n, rerr
		}
	}
	return n, err
}

// Clone implements credentials.TransportCredentials.
func (n named) Clone() credentials.TransportCredentials { return named{n.TransportCredentials.Clone()} }

// advice says what a failed handshake means for who configured it.
func advice(err error) string {
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var host x509.HostnameError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &unknown):
		return " (its certificate isn't signed by the CA that this side trusts)"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return " (its certificate has expired, or isn't valid yet: compare the clocks)"
	case errors.As(err, &host):
		return " (its certificate is for another name)"
	case errors.As(err, &record):
		return " (it speaks plaintext, or isn't Firn)"
	default:
		return ""
	}
}

// Unreachable tells a failure of the transport that no further try will mend from
// one that may pass: nil for the latter. err is that of a gRPC call. Where only the
// server can tell, it is asked, for two seconds at most.
func Unreachable(addr string, err error) error {
	s, ok := status.FromError(err)
	if !ok || s.Code() != codes.Unavailable {
		return nil
	}
	text := s.Message()
	var hint string
	switch {
	case strings.Contains(text, "authentication handshake failed"):
		_, text, _ = strings.Cut(text, "authentication handshake failed: ")
		text = strings.TrimSuffix(text, `"`)
		hint = "Compare --tls-ca with who signed the other side's certificate, and the address with the names in it."
		if strings.Contains(text, "EOF") || strings.Contains(text, "reset") || strings.Contains(text, "deadline") {
			return nil // it went away in the middle
		}
	case strings.Contains(text, "remote error: tls:"):
		_, text, _ = strings.Cut(text, "remote error: tls:")
		text = "the other side refuses this side's certificate:" + strings.TrimSuffix(text, `"`)
		hint = "Give a certificate that its CA has signed, with --tls-cert and --tls-key."
	case strings.Contains(text, "error reading server preface"):
		if !speaksTLS(addr) {
			return nil // it went away in the middle
		}
		text = "the other side doesn't answer in plaintext; it may want TLS"
		hint = "Give the CA of its certificate with --tls-ca, or --tls for a certificate that the system trusts."
	default:
		return nil
	}
	return &commit.Error{Code: commit.CodeTLS, Op: "connect to", Object: addr, Cause: errors.New(text), Hint: hint}
}

// speaksTLS says whether a server begins TLS. One that wants TLS hangs up on
// plaintext without a word, and so does any server that ends at that moment.
func speaksTLS(addr string) bool {
	d := tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS13}}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err == nil {
		_ = conn.Close()
		return true
	}
	var unknown *tls.CertificateVerificationError
	return errors.As(err, &unknown) || strings.Contains(err.Error(), "remote error: tls:")
}
