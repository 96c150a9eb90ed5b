package cluster_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/cluster"
	"github.com/firn-project/firn/internal/config"
	"github.com/firn-project/firn/internal/security"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"google.golang.org/grpc"
)

// authority signs certificates.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
	n    int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{dir: t.TempDir(), key: key}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(raw); err != nil {
		t.Fatal(err)
	}
	a.file = writePEM(t, filepath.Join(a.dir, "ca.crt"), "CERTIFICATE", raw)
	return a
}

func writePEM(t *testing.T, path, kind string, raw []byte) string {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// issue makes a certificate; name is a DNS name or an address, unit its
// organizational unit, until how long it is good.
func (a *authority) issue(t *testing.T, name, unit string, until time.Time) config.TLS {
	t.Helper()
	a.n++
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(a.n + 1), Subject: pkix.Name{CommonName: "test " + name}, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if unit != "" {
		c.Subject.OrganizationalUnit = []string{unit}
	}
	if ip := net.ParseIP(name); ip != nil {
		c.IPAddresses = []net.IP{ip}
	} else {
		c.DNSNames = []string{name}
	}
	raw, err := x509.CreateCertificate(rand.Reader, c, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	base := filepath.Join(a.dir, big.NewInt(a.n).String())
	return config.TLS{Cert: writePEM(t, base+".crt", "CERTIFICATE", raw), Key: writePEM(t, base+".key", "PRIVATE KEY", pkcs), CA: a.file}
}

func (a *authority) good(t *testing.T, unit string) config.TLS {
	t.Helper()
	return a.issue(t, "127.0.0.1", unit, time.Now().Add(time.Hour))
}

// part is what a scheduler is started with.
func startScheduler(t *testing.T, cfg cluster.SchedulerConfig) (addr string) {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := cluster.StartScheduler(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, s.Close(context.WithoutCancel(t.Context()))) })
	return s.Addr()
}

// join starts an executor, for as long as the test runs.
func join(t *testing.T, server string, tls config.TLS, token string) (addr, id string, err error) {
	t.Helper()
	x, err := cluster.StartExecutor(t.Context(), "", config.Executor{
		Server: server, Listen: "127.0.0.1:0", Dir: t.TempDir(), Slots: 1, Memory: 256 << 20, TLS: tls, Token: token,
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		return "", "", err
	}
	t.Cleanup(func() { check(t, x.Close(context.WithoutCancel(t.Context()))) })
	return x.Addr(), x.ID(), nil
}

// dial runs a SELECT over a connection with the options.
func dial(t *testing.T, addr string, opts ...client.Option) error {
	t.Helper()
	c, err := client.Dial(t.Context(), addr, opts...)
	if err != nil {
		return err
	}
	defer func() { check(t, c.Close()) }()
	return try(t, c, "SELECT 1 AS a UNION ALL SELECT 2")
}

// files are those of a client.
func with(t *testing.T, f security.Files) client.Option {
	t.Helper()
	c, err := f.Client()
	if err != nil {
		t.Fatal(err)
	}
	return client.WithTLS(c)
}

func create(t *testing.T, dir string, role security.Role, expires time.Time) (id, secret string) {
	t.Helper()
	k, secret, err := security.OpenTokens(dir).Create("test", role, expires)
	if err != nil {
		t.Fatal(err)
	}
	return k.ID, secret
}

// TestTLSAndTokens: a cluster whose parts speak TLS and ask for tokens runs
// statements, and everybody who isn't let in is told why.
func TestTLSAndTokens(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	dir := t.TempDir()
	_, token := create(t, dir, security.RoleClient, time.Time{})
	_, joining := create(t, dir, security.RoleExecutor, time.Time{})
	_, expired := create(t, dir, security.RoleClient, time.Now().Add(-time.Minute))
	revoked, gone := create(t, dir, security.RoleClient, time.Time{})
	addr := startScheduler(t, cluster.SchedulerConfig{Dir: dir, TLS: ca.good(t, "")})
	if _, _, err := join(t, addr, ca.good(t, ""), joining); err != nil {
		t.Fatal(err)
	}
	trust := with(t, security.Files{CA: ca.file})
	for _, secret := range []string{token, gone} {
		if err := dial(t, addr, trust, client.WithToken(secret)); err != nil {
			t.Fatal(err)
		}
	}
	if err := security.OpenTokens(dir).Revoke(revoked); err != nil {
		t.Fatal(err)
	}
	member, stranger := ca.good(t, "firn-client"), ca.good(t, "firn-guest")
	if err := dial(t, addr, with(t, security.Files{CA: ca.file, Cert: member.Cert, Key: member.Key})); err != nil {
		t.Errorf("a client's certificate: %v", err)
	}
	for name, tt := range map[string]struct {
		opts []client.Option
		code commit.Code
		want string
	}{
		"no token":              {[]client.Option{trust}, commit.CodeUnauthenticated, "neither a token nor a certificate"},
		"wrong token":           {[]client.Option{trust, client.WithToken("firn_0_0")}, commit.CodeUnauthenticated, "isn't known"},
		"revoked token":         {[]client.Option{trust, client.WithToken(gone)}, commit.CodeUnauthenticated, "was revoked"},
		"expired token":         {[]client.Option{trust, client.WithToken(expired)}, commit.CodeUnauthenticated, "has expired"},
		"token of an executor":  {[]client.Option{trust, client.WithToken(joining)}, commit.CodeUnauthenticated, "for the role executor"},
		"another's certificate": {[]client.Option{with(t, security.Files{CA: ca.file, Cert: stranger.Cert, Key: stranger.Key})}, commit.CodeUnauthenticated, "no organizational unit firn-client"},
		"wrong CA":              {[]client.Option{with(t, security.Files{CA: other.file}), client.WithToken(token)}, commit.CodeTLS, "isn't signed by the CA"},
		"wrong name":            {[]client.Option{with(t, security.Files{CA: ca.file, ServerName: "elsewhere"}), client.WithToken(token)}, commit.CodeTLS, "for another name"},
		"plaintext":             {[]client.Option{client.WithToken(token)}, "", "TLS"},
	} {
		err := dial(t, addr, tt.opts...)
		if err == nil || tt.code != "" && commit.CodeOf(err) != tt.code || !strings.Contains(err.Error()+hint(err), tt.want) {
			t.Errorf("%s: got %v, want %s with %q", name, err, tt.code, tt.want)
		}
	}
	for name, tt := range map[string]struct {
		tls   config.TLS
		token string
		code  commit.Code
		want  string
	}{
		"no token":          {ca.good(t, ""), "", commit.CodeUnauthenticated, "no organizational unit firn-executor"},
		"token of a client": {ca.good(t, ""), token, commit.CodeUnauthenticated, "for the role client"},
		"wrong CA":          {other.good(t, "firn-executor"), joining, commit.CodeTLS, "isn't signed by the CA"},
	} {
		if _, _, err := join(t, addr, tt.tls, tt.token); commit.CodeOf(err) != tt.code || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("executor, %s: got %v, want %s with %q", name, err, tt.code, tt.want)
		}
	}
}

func hint(err error) string {
	if e, ok := err.(*commit.Error); ok { //nolint:errorlint // as it came
		return e.Hint
	}
	return ""
}

// TestMutualTLS: where certificates are required, nobody comes in without one,
// and each kind of part needs one of its own.
func TestMutualTLS(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	server := ca.good(t, "")
	server.RequireClientCert = true
	addr := startScheduler(t, cluster.SchedulerConfig{TLS: server, AllowAnonymous: true})
	if _, _, err := join(t, addr, ca.good(t, "firn-executor"), ""); err != nil {
		t.Fatal(err)
	}
	member, foreign := ca.good(t, "firn-client"), other.good(t, "firn-client")
	if err := dial(t, addr, with(t, security.Files{CA: ca.file, Cert: member.Cert, Key: member.Key})); err != nil {
		t.Fatal(err)
	}
	for name, files := range map[string]security.Files{
		"no certificate":  {CA: ca.file},
		"of another's CA": {CA: ca.file, Cert: foreign.Cert, Key: foreign.Key},
	} {
		if err := dial(t, addr, with(t, files)); commit.CodeOf(err) != commit.CodeTLS || !strings.Contains(err.Error(), "refuses this side's certificate") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := join(t, addr, member, ""); commit.CodeOf(err) != commit.CodeUnauthenticated {
		t.Errorf("a client joined as an executor: %v", err)
	}
}

// TestServersThatArentWhatTheySay: who dials finds out.
func TestServersThatArentWhatTheySay(t *testing.T) {
	ca := newAuthority(t)
	expired := ca.issue(t, "127.0.0.1", "", time.Now().Add(-time.Hour))
	elsewhere := startScheduler(t, cluster.SchedulerConfig{TLS: ca.issue(t, "elsewhere.example", "", time.Now().Add(time.Hour))})
	plain := startScheduler(t, cluster.SchedulerConfig{})
	trust := with(t, security.Files{CA: ca.file})
	// One that expires while it serves: a server doesn't start with such a one.
	pair, err := tls.LoadX509KeyPair(expired.Cert, expired.Key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { check(t, l.Close()); <-done })
	for addr, want := range map[string]string{elsewhere: "for another name", plain: "speaks plaintext", l.Addr().String(): "has expired"} {
		if err := dial(t, addr, trust); commit.CodeOf(err) != commit.CodeTLS || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if _, _, err := join(t, addr, ca.good(t, ""), ""); commit.CodeOf(err) != commit.CodeTLS || !strings.Contains(err.Error(), want) {
			t.Errorf("executor: got %v, want %q", err, want)
		}
	}
	for name, cfg := range map[string]cluster.SchedulerConfig{
		"has expired":             {TLS: expired},
		"no such file":            {TLS: config.TLS{Cert: "/nowhere", Key: "/nowhere"}},
		"no certificate in PEM":   {TLS: config.TLS{Cert: expired.Cert, Key: expired.Key, CA: expired.Key}},
		"only a loopback address": {Listen: "0.0.0.0:0"},
	} {
		cfg.Dir = t.TempDir()
		if s, err := cluster.StartScheduler(t.Context(), cfg); err == nil {
			t.Errorf("%s: it started", name)
			check(t, s.Close(t.Context()))
		} else if !strings.Contains(err.Error(), name) && name != "no certificate in PEM" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPlaintextIsForThisMachine: anything else must be asked for, and is warned
// about.
func TestPlaintextIsForThisMachine(t *testing.T) {
	var log bytes.Buffer
	dir := t.TempDir()
	addr := startScheduler(t, cluster.SchedulerConfig{
		Dir: dir, Listen: "0.0.0.0:0", AllowPlaintext: true, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if !strings.Contains(log.String(), "plaintext on an address") {
		t.Errorf("no warning: %s", log.String())
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	// Tokens are asked for there even while there are none.
	if err := dial(t, "127.0.0.1:"+port); commit.CodeOf(err) != commit.CodeUnauthenticated {
		t.Errorf("got %v", err)
	}
	if _, err := client.Dial(t.Context(), "192.0.2.1:7350"); commit.CodeOf(err) != commit.CodePlaintext {
		t.Errorf("a client dialled another machine in plaintext: %v", err)
	}
	if c, err := client.Dial(t.Context(), "192.0.2.1:7350", client.WithPlaintext()); err != nil {
		t.Error(err)
	} else {
		check(t, c.Close())
	}
	if _, _, err := join(t, "192.0.2.1:7350", config.TLS{}, ""); commit.CodeOf(err) != commit.CodePlaintext {
		t.Errorf("an executor: %v", err)
	}
}

// TestOnlyTheSchedulerControlsAnExecutor: whoever reaches an executor's port can
// neither run tasks nor look at sources.
func TestOnlyTheSchedulerControlsAnExecutor(t *testing.T) {
	dir := t.TempDir()
	addr := startScheduler(t, cluster.SchedulerConfig{Dir: dir})
	ours, id, err := join(t, addr, config.TLS{}, "")
	if err != nil {
		t.Fatal(err)
	}
	seed := make([]byte, 32)
	forger := wire.NewSigner(ed25519.NewKeyFromSeed(seed))
	for name, opts := range map[string][]grpc.DialOption{
		"nobody":        nil,
		"another's key": {grpc.WithPerRPCCredentials(wire.NewControlCredentials(forger, id))},
	} {
		conn, err := grpc.NewClient(ours, append(wire.DialOptions(), opts...)...)
		if err != nil {
			t.Fatal(err)
		}
		control := firnpb.NewExecutorServiceClient(conn)
		var launch, probe, cancel, free error
		var wg sync.WaitGroup
		wg.Go(func() { _, launch = control.LaunchTasks(t.Context(), &firnpb.LaunchTasksRequest{}) })
		wg.Go(func() { _, probe = control.Probe(t.Context(), &firnpb.ProbeRequest{}) })
		wg.Go(func() { _, cancel = control.CancelTasks(t.Context(), &firnpb.CancelTasksRequest{}) })
		wg.Go(func() { _, free = control.FreeJobData(t.Context(), &firnpb.FreeJobDataRequest{}) })
		wg.Wait()
		for _, err := range []error{launch, probe, cancel, free} {
			if err == nil || !strings.Contains(err.Error(), "doesn't come from the scheduler") {
				t.Errorf("%s: %v", name, err)
			}
		}
		check(t, conn.Close())
	}
}
