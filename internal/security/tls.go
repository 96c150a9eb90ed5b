package security

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/firn-project/firn/commit"
)

// Files names the PEM files of one part. The zero value is plaintext.
type Files struct {
	// Cert and Key are this part's certificate, with the chain below it, and its
	// key. Servers need both; for a client they are how it names itself.
	Cert, Key string
	// CA is who signed the certificates of the other side. Empty: those whom the
	// operating system trusts.
	CA string
	// ServerName is the name that the other side's certificate must have, if it
	// isn't the one in the address.
	ServerName string
	// On asks for TLS where no file says so.
	On bool
}

// Enabled says whether anything asks for TLS.
func (f Files) Enabled() bool { return f.On || f.Cert != "" || f.Key != "" || f.CA != "" }

// Server is the configuration of a listener. Clients' certificates are checked
// when they show one; with mustShow they have to. The files are read again when
// they change, so a renewed certificate needs no restart.
func (f Files) Server(mustShow bool) (*tls.Config, error) {
	if f.Cert == "" || f.Key == "" {
		return nil, bad("certificate", errors.New("a server needs a certificate and its key"), "Give both files.")
	}
	pair, err := newPair(f)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair.get() }}
	if f.CA == "" {
		if mustShow {
			return nil, bad("certificate of clients", errors.New("there is no CA to check them by"), "Give a CA file.")
		}
		return c, nil
	}
	if c.ClientCAs, err = pool(f.CA); err != nil {
		return nil, err
	}
	c.ClientAuth = tls.VerifyClientCertIfGiven
	if mustShow {
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return c, nil
}

// Client is the configuration of who dials. It shows a certificate if there is
// one.
func (f Files) Client() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS13, ServerName: f.ServerName}
	var err error
	if f.CA != "" {
		if c.RootCAs, err = pool(f.CA); err != nil {
			return nil, err
		}
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, bad("certificate", errors.New("there is only one of certificate and key"), "Give both files, or none.")
	}
	if f.Cert != "" {
		pair, err := newPair(f)
		if err != nil {
			return nil, err
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair.get() }
	}
	return c, nil
}

func pool(path string) (*x509.CertPool, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, bad(path, err, "Check the path of the CA file.")
	}
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM(raw) {
		return nil, bad(path, errors.New("it holds no certificate in PEM form"), "Name the file with the CA's certificate.")
	}
	return p, nil
}

// pair is a certificate that is read again when its file changes.
type pair struct {
	files Files
	mu    sync.Mutex
	cert  *tls.Certificate
	// changed is the modification time of what was read, looked when that was
	// last compared.
	changed, looked time.Time
}

// lookEvery bounds how often the file is looked at.
const lookEvery = time.Second

// newPair reads the files, so that what is wrong with them shows at start.
func newPair(f Files) (*pair, error) {
	p := &pair{files: f}
	if _, err := p.get(); err != nil {
		return nil, err
	}
	if until := p.cert.Leaf.NotAfter; time.Now().After(until) {
		return nil, bad(f.Cert, fmt.Errorf("the certificate has expired at %s", until.UTC().Format(time.RFC3339)), "Renew it.")
	}
	return p, nil
}

func (p *pair) get() (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.cert != nil && now.Sub(p.looked) < lookEvery {
		return p.cert, nil
	}
	p.looked = now
	info, err := os.Stat(p.files.Cert)
	if err == nil && p.cert != nil && info.ModTime().Equal(p.changed) {
		return p.cert, nil
	}
	var c tls.Certificate
	if err == nil {
		c, err = tls.LoadX509KeyPair(p.files.Cert, p.files.Key)
	}
	if err != nil {
		if p.cert != nil {
			return p.cert, nil // half written: the old one goes on
		}
		return nil, bad(p.files.Cert, err, "Check the paths of certificate and key, and that they belong together.")
	}
	p.cert, p.changed = &c, info.ModTime()
	return p.cert, nil
}

func bad(object string, cause error, hint string) error {
	return &commit.Error{Code: commit.CodeConfig, Op: "set up TLS", Object: object, Cause: cause, Hint: hint}
}
