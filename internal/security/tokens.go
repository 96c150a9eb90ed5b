package security

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/firn-project/firn/commit"
)

// Role is what a caller of the scheduler may do.
type Role string

// Roles.
const (
	// RoleClient sends statements.
	RoleClient Role = "client"
	// RoleExecutor joins as an executor.
	RoleExecutor Role = "executor"
)

// Token is what is kept of a token: never the token itself.
type Token struct {
	ID      string     `json:"id"`
	Name    string     `json:"name"`
	Role    Role       `json:"role"`
	Created time.Time  `json:"created"`
	Expires *time.Time `json:"expires,omitempty"`
	// Hash is SHA-256 of the token in hexadecimal. A token is 256 random bits, so
	// a slow hash would add nothing.
	Hash string `json:"sha256"`
}

// TokensName is the file of tokens in a scheduler's directory.
const TokensName = "tokens.json"

// Tokens is a file of tokens. It is read again when it changed, so a token that
// was revoked is refused at the next call. It is safe for concurrent use, also by
// several processes.
type Tokens struct {
	path string

	mu      sync.Mutex
	list    []Token
	changed time.Time
	size    int64
}

// OpenTokens takes the file of a scheduler's directory, which need not exist.
func OpenTokens(dir string) *Tokens { return &Tokens{path: filepath.Join(dir, TokensName)} }

// maxTokens bounds the file in bytes.
const maxTokens = 4 << 20

// List gives the tokens, the oldest first.
func (t *Tokens) List() ([]Token, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	info, err := os.Stat(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		t.list, t.changed, t.size = nil, time.Time{}, 0
		return nil, nil
	}
	if err != nil {
		return nil, t.broken("read", err)
	}
	if info.ModTime().Equal(t.changed) && info.Size() == t.size {
		return slices.Clone(t.list), nil
	}
	if info.Size() > maxTokens {
		return nil, t.broken("read", fmt.Errorf("it has %d bytes; want at most %d", info.Size(), maxTokens))
	}
	raw, err := os.ReadFile(t.path)
	if err != nil {
		return nil, t.broken("read", err)
	}
	list, err := parseTokens(raw)
	if err != nil {
		return nil, t.broken("read", err)
	}
	t.list, t.changed, t.size = list, info.ModTime(), info.Size()
	return slices.Clone(list), nil
}

// parseTokens reads the content of the file.
func parseTokens(raw []byte) ([]Token, error) {
	var list []Token
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&list); err != nil {
		return nil, err
	}
	for i, k := range list {
		if h, err := hex.DecodeString(k.Hash); err != nil || len(h) != sha256.Size || k.ID == "" || k.Role != RoleClient && k.Role != RoleExecutor {
			return nil, fmt.Errorf("entry %d isn't a token", i+1)
		}
	}
	return list, nil
}

// Create makes a token. The secret is given once and kept nowhere. A zero expires
// means never.
func (t *Tokens) Create(name string, role Role, expires time.Time) (Token, string, error) {
	if role != RoleClient && role != RoleExecutor {
		return Token{}, "", &commit.Error{Code: commit.CodeUsage, Op: "create token", Object: name, Cause: fmt.Errorf("the role %q isn't %s or %s", role, RoleClient, RoleExecutor)}
	}
	var random [38]byte
	if _, err := rand.Read(random[:]); err != nil {
		return Token{}, "", err
	}
	k := Token{ID: hex.EncodeToString(random[:6]), Name: name, Role: role, Created: time.Now().UTC().Truncate(time.Second)}
	if !expires.IsZero() {
		at := expires.UTC().Truncate(time.Second)
		k.Expires = &at
	}
	secret := "firn_" + k.ID + "_" + hex.EncodeToString(random[6:])
	k.Hash = hashOf(secret)
	err := t.change(func(list []Token) ([]Token, error) { return append(list, k), nil })
	return k, secret, err
}

// Revoke removes a token, by its id.
func (t *Tokens) Revoke(id string) error {
	return t.change(func(list []Token) ([]Token, error) {
		i := slices.IndexFunc(list, func(k Token) bool { return k.ID == id })
		if i < 0 {
			return nil, &commit.Error{
				Code: commit.CodeTokenNotFound, Op: "revoke token", Object: id, Cause: errors.New("no token has this id"),
				Hint: "`firn token list` shows the ids.",
			}
		}
		return slices.Delete(list, i, i+1), nil
	})
}

// change rewrites the file, one process at a time.
func (t *Tokens) change(f func([]Token) ([]Token, error)) (err error) {
	if err := os.MkdirAll(filepath.Dir(t.path), 0o755); err != nil {
		return t.broken("write", err)
	}
	lock, err := os.OpenFile(t.path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return t.broken("lock", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return t.broken("lock", err)
	}
	list, err := t.List()
	if err != nil {
		return err
	}
	if list, err = f(list); err != nil {
		return err
	}
	raw, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	next := t.path + ".new"
	if err := os.WriteFile(next, append(raw, '\n'), 0o600); err != nil {
		return t.broken("write", err)
	}
	if err := os.Rename(next, t.path); err != nil {
		return t.broken("write", err)
	}
	return nil
}

func (t *Tokens) broken(op string, err error) error {
	return &commit.Error{Code: commit.CodeConfig, Op: op + " tokens in", Object: t.path, Cause: err, Hint: "Correct the file's rights or content; `firn token` writes it."}
}

func hashOf(secret string) string {
	h := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(h[:])
}

// errToken is the answer to every token that doesn't hold, unless its holder is
// proven to have had it: a guess learns nothing.
var errToken = errors.New("the token isn't known, or was revoked")

// check finds the token and says why it doesn't hold for the role.
func check(list []Token, secret string, role Role, now time.Time) error {
	hash := []byte(hashOf(secret))
	var found *Token
	for i := range list {
		// All are compared, in constant time each.
		if subtle.ConstantTimeCompare(hash, []byte(strings.ToLower(list[i].Hash))) == 1 {
			found = &list[i]
		}
	}
	switch {
	case found == nil:
		return errToken
	case found.Expires != nil && now.After(*found.Expires):
		return fmt.Errorf("the token %s has expired at %s", found.ID, found.Expires.Format(time.RFC3339))
	case found.Role != role:
		return fmt.Errorf("the token %s is for the role %s, not %s", found.ID, found.Role, role)
	}
	return nil
}
