package location

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/firn-project/firn/internal/security"
)

// Location is where a Flight server listens.
type Location struct {
	// Host is a name or an IP address, in lower case.
	Host, Port string
	TLS        bool
}

// Parse reads a URI as Flight has them: grpc://, grpc+tcp:// or
// grpc+tls://, with host and port and nothing else.
func Parse(uri string) (Location, error) {
	u, err := url.Parse(uri)
	if err != nil {
		return Location{}, errors.New("it isn't a URI; want grpc+tls://HOST:PORT or grpc://HOST:PORT")
	}
	var l Location
	switch strings.ToLower(u.Scheme) {
	case "grpc+tls":
		l.TLS = true
	case "grpc", "grpc+tcp":
	default:
		return l, fmt.Errorf("the scheme %q isn't one of grpc+tls, grpc and grpc+tcp", u.Scheme)
	}
	if u.User != nil {
		return l, errors.New("it has a user in it; users and passwords stand in the scheduler's configuration")
	}
	l.Host, l.Port = strings.ToLower(u.Hostname()), u.Port()
	if l.Host == "" || l.Port == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" {
		return l, errors.New("want grpc+tls://HOST:PORT or grpc://HOST:PORT, and nothing behind it")
	}
	return l, nil
}

// String gives the location as a URI.
func (l Location) String() string {
	scheme := "grpc"
	if l.TLS {
		scheme = "grpc+tls"
	}
	return scheme + "://" + l.Address()
}

// Address is what is dialled, HOST:PORT.
func (l Location) Address() string { return net.JoinHostPort(l.Host, l.Port) }

// Loopback says whether the location is on this machine by its name alone.
func (l Location) Loopback() bool { return security.LoopbackHost(l.Host) }

// CheckPattern says whether a text is a pattern of addresses: HOST:PORT, where HOST may
// begin with *. and PORT may be *.
func CheckPattern(p string) error {
	host, port, err := net.SplitHostPort(p)
	if err != nil || host == "" || port == "" {
		return fmt.Errorf("%q: want HOST:PORT, *.DOMAIN:PORT or HOST:*", p)
	}
	if rest := strings.TrimPrefix(host, "*."); rest == "" || strings.Contains(rest, "*") {
		return fmt.Errorf("%q: a * stands for the first labels of a host only, as in *.example.com:31337", p)
	}
	if strings.Contains(port, "*") && port != "*" {
		return fmt.Errorf("%q: a * stands for any port, or not at all", p)
	}
	return nil
}

// Matches says whether a pattern stands for the location.
func (l Location) Matches(pattern string) bool {
	host, port, err := net.SplitHostPort(strings.ToLower(pattern))
	if err != nil || port != "*" && port != l.Port {
		return false
	}
	if domain, ok := strings.CutPrefix(host, "*."); ok {
		return strings.HasSuffix(l.Host, "."+domain) && net.ParseIP(l.Host) == nil
	}
	return host == l.Host
}
