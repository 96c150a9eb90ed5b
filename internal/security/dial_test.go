package security

import (
	"net"
	"net/http/httptest"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/firn-project/firn/commit"
)

// A server that hangs up on plaintext wants TLS, or has just ended: the latter
// mustn't stop an executor, which tries again.
func TestHangingUpIsNotTLS(t *testing.T) {
	hungUp := status.Error(codes.Unavailable, "connection error: desc = \"error reading server preface: EOF\"")

	secure := httptest.NewTLSServer(nil)
	defer secure.Close()
	if err := Unreachable(secure.Listener.Addr().String(), hungUp); commit.CodeOf(err) != commit.CodeTLS {
		t.Errorf("a server with TLS: %v", err)
	}

	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := plain.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	addr := plain.Addr().String()
	if err := Unreachable(addr, hungUp); err != nil {
		t.Errorf("a server that ends while it accepts: %v", err)
	}
	_ = plain.Close()
	<-done
	if err := Unreachable(addr, hungUp); err != nil {
		t.Errorf("a server that has ended: %v", err)
	}
}
