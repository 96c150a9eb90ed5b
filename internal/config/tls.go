package config

import "errors"

// TLS is how a part is reached, and how it checks others. All are PEM files.
type TLS struct {
	// Cert and Key are the part's own certificate and its key.
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
	// CA is who signed the certificates of the other parts, and of those who
	// name themselves by one.
	CA string `yaml:"ca"`
	// RequireClientCert refuses connections without a certificate.
	RequireClientCert bool `yaml:"require_client_cert"`
}

func (t TLS) validate() error {
	switch {
	case (t.Cert == "") != (t.Key == ""):
		return errors.New("tls: there is only one of cert and key; want both")
	case t.Cert == "" && t != TLS{}:
		return errors.New("tls.cert: it is empty; a scheduler needs a certificate to speak TLS")
	case t.RequireClientCert && t.CA == "":
		return errors.New("tls.ca: it is empty; certificates of clients can't be checked without one")
	}
	return nil
}
