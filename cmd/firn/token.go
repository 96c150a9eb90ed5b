package main

import (
	"fmt"
	"time"

	"github.com/firn-project/firn/internal/render"
	"github.com/firn-project/firn/internal/security"
	"github.com/spf13/cobra"
)

func (a *app) tokenCommand() *cobra.Command {
	return group("token", "Make and revoke the tokens by which clients and executors name themselves",
		a.tokenCreate(), a.tokenList(), a.tokenRevoke())
}

// stateDir adds the --dir of a scheduler on this machine.
func stateDir(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", "", "`directory` of the scheduler's state")
}

func (a *app) tokens(cmd *cobra.Command, dir string) (*security.Tokens, error) {
	if dir == "" {
		return nil, usage(cmd, "--dir is missing")
	}
	return security.OpenTokens(dir), nil
}

func (a *app) tokenCreate() *cobra.Command {
	var dir, role, name string
	var expires time.Duration
	cmd := &cobra.Command{
		Use:   "create --dir DIR [--role client|executor]",
		Short: "Make a token and print it, once",
		Long: `Makes a token and prints it. It is kept as a hash only, so it can't be shown again. From the
first token on, a scheduler asks everybody for one (or for a certificate); it need not be restarted.`,
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			format, err := a.format()
			if err != nil {
				return err
			}
			if expires < 0 {
				return usage(cmd, "--expires-in %s: want more than 0", expires)
			}
			tokens, err := a.tokens(cmd, dir)
			if err != nil {
				return err
			}
			var until time.Time
			if expires > 0 {
				until = time.Now().Add(expires)
			}
			k, secret, err := tokens.Create(name, security.Role(role), until)
			if err != nil {
				return err
			}
			if format == render.Text {
				_, err = fmt.Fprintln(a.stdout, secret)
				return err
			}
			row := tokenOf(k)
			row.Token = secret
			return render.Object(a.stdout, row)
		},
	}
	stateDir(cmd, &dir)
	cmd.Flags().StringVar(&role, "role", string(security.RoleClient), "what the token is for: `client` or executor")
	cmd.Flags().StringVar(&name, "name", "", "who will hold it, for `firn token list`")
	cmd.Flags().DurationVar(&expires, "expires-in", 0, "how `long` it is good, such as 720h; 0 for ever")
	a.outputFlag(cmd)
	return cmd
}

// tokenJSON is a token as the commands show it.
type tokenJSON struct {
	ID      string  `json:"id"`
	Role    string  `json:"role"`
	Name    string  `json:"name"`
	Created string  `json:"created"`
	Expires *string `json:"expires"`
	// Token is the secret, only where it was just made.
	Token string `json:"token,omitempty"`
}

func tokenOf(k security.Token) tokenJSON {
	t := tokenJSON{ID: k.ID, Role: string(k.Role), Name: k.Name, Created: k.Created.Format(time.RFC3339)}
	if k.Expires != nil {
		t.Expires = new(k.Expires.Format(time.RFC3339))
	}
	return t
}

func (a *app) tokenList() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "list --dir DIR", Aliases: []string{"ls"}, Short: "List the tokens there are, without the tokens themselves",
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			tokens, err := a.tokens(cmd, dir)
			if err != nil {
				return err
			}
			format, err := a.format()
			if err != nil {
				return err
			}
			list, err := tokens.List()
			if err != nil {
				return err
			}
			rows := make([]tokenJSON, len(list))
			for i, k := range list {
				rows[i] = tokenOf(k)
			}
			return render.List(a.stdout, format, []string{"id", "role", "name", "created", "expires"}, rows, func(t tokenJSON) []string {
				expires := "never"
				if t.Expires != nil {
					expires = *t.Expires
				}
				return []string{t.ID, t.Role, t.Name, t.Created, expires}
			})
		},
	}
	stateDir(cmd, &dir)
	a.outputFlag(cmd)
	return cmd
}

func (a *app) tokenRevoke() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "revoke ID --dir DIR", Short: "Revoke a token, from the next call on",
		Args: arguments("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			tokens, err := a.tokens(cmd, dir)
			if err != nil {
				return err
			}
			return tokens.Revoke(args[0])
		},
	}
	stateDir(cmd, &dir)
	return cmd
}
