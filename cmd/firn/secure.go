package main

import (
	"os"
	"strings"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/config"
	"github.com/firn-project/firn/internal/security"
	"github.com/spf13/cobra"
)

// tokenVariable holds a token; there is no flag for it, since command lines are
// read by other users of a machine.
const tokenVariable = config.EnvPrefix + "TOKEN"

// serverTLS adds the flags of who listens.
func serverTLS(cmd *cobra.Command, t *config.TLS, plaintext *bool) {
	f := cmd.Flags()
	f.StringVar(&t.Cert, "tls-cert", "", "PEM `file` with the certificate of this process and its chain")
	f.StringVar(&t.Key, "tls-key", "", "PEM `file` with the key of --tls-cert")
	f.StringVar(&t.CA, "tls-ca", "", "PEM `file` with the CA that signed the others' certificates")
	f.BoolVar(plaintext, "allow-plaintext", false, "go without TLS to and from other machines")
}

// tokenFlag adds --token-file.
func tokenFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "token-file", "", "`file` with the token to show to the scheduler; or set "+tokenVariable)
}

// token reads the token: the file's, else the variable's.
func (a *app) token(file string) (string, error) {
	if file == "" {
		token, _ := a.getenv(tokenVariable)
		return strings.TrimSpace(token), nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", &commit.Error{Code: commit.CodeConfig, Op: "read token", Object: file, Cause: err, Hint: "Check the path given to --token-file."}
	}
	return strings.TrimSpace(string(raw)), nil
}

// dialFlags are how a client reaches its server.
type dialFlags struct {
	tls       security.Files
	tokenFile string
	plaintext bool
}

func (d *dialFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&d.tls.On, "tls", false, "speak TLS with a server whose certificate the system trusts")
	f.StringVar(&d.tls.CA, "tls-ca", "", "speak TLS; PEM `file` with the CA that signed the server's certificate")
	f.StringVar(&d.tls.Cert, "tls-cert", "", "PEM `file` with a certificate that names you")
	f.StringVar(&d.tls.Key, "tls-key", "", "PEM `file` with the key of --tls-cert")
	f.StringVar(&d.tls.ServerName, "tls-server-name", "", "`name` in the certificates of scheduler and executors, if not that of their addresses")
	f.BoolVar(&d.plaintext, "allow-plaintext", false, "go without TLS to other machines")
	tokenFlag(cmd, &d.tokenFile)
}

// options turn the flags into those of the client package.
func (a *app) dialOptions(d dialFlags) ([]client.Option, error) {
	token, err := a.token(d.tokenFile)
	if err != nil {
		return nil, err
	}
	opts := []client.Option{client.WithToken(token)}
	if d.plaintext {
		opts = append(opts, client.WithPlaintext())
	}
	if !d.tls.Enabled() {
		return opts, nil
	}
	c, err := d.tls.Client()
	return append(opts, client.WithTLS(c)), err
}
