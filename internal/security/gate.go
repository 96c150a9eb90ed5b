package security

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/firn-project/firn/commit"
)

// Gate lets callers of the scheduler in. It is safe for concurrent use.
type Gate struct {
	// Tokens are those that are good; nil for none.
	Tokens *Tokens
	// Own is a token of this process's own that is good for every role: its parts
	// in one process name themselves by it. Empty: none.
	Own string
	// Anonymous lets callers in that show neither a token nor a certificate, for
	// as long as there are no tokens.
	Anonymous bool
}

// unit is the organizational unit of a certificate that has a role.
func unit(r Role) string { return "firn-" + string(r) }

// roles says which role a service asks for.
var roles = map[string]Role{
	"firn.v1.ClientService": RoleClient, "firn.v1.SchedulerService": RoleExecutor,
	// The open write protocol; its workers' own tokens are looked at before.
	"arrow.flight.protocol.FlightService": RoleClient,
}

// Check decides about one call of a gRPC method, "/service/method". The error is
// a *commit.Error with CodeUnauthenticated.
func (g *Gate) Check(ctx context.Context, method string) error {
	service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	role, ok := roles[service]
	if !ok {
		return refuse(method, errors.New("nobody may call it"))
	}
	var list []Token
	if g.Tokens != nil {
		var err error
		if list, err = g.Tokens.List(); err != nil {
			return refuse(string(role), err)
		}
	}
	if secret, ok := tokenOf(ctx); ok {
		// One that is shown must be good, also where none is asked for.
		if g.Own != "" && subtle.ConstantTimeCompare([]byte(secret), []byte(g.Own)) == 1 {
			return nil
		}
		if err := check(list, secret, role, time.Now()); err != nil {
			return refuse(string(role), err)
		}
		return nil
	}
	shown, err := certified(ctx, role)
	switch {
	case err == nil:
		return nil
	case shown:
		return refuse(string(role), err)
	case g.Anonymous && len(list) == 0:
		return nil
	}
	return refuse(string(role), errors.New("it shows neither a token nor a certificate"))
}

func refuse(who string, cause error) error {
	return &commit.Error{
		Code: commit.CodeUnauthenticated, Op: "let in", Object: who, Cause: cause,
		Hint: "Set FIRN_TOKEN, or --token-file, to a token that `firn token create --role " + who + "` made on the scheduler's machine, or show a certificate.",
	}
}

// tokenOf reads the header of a call.
func tokenOf(ctx context.Context) (string, bool) {
	values := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(values) == 0 {
		return "", false
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	const most = 256
	if !strings.EqualFold(scheme, "bearer") || len(token) > most || len(values) > 1 {
		return "", true
	}
	return strings.TrimSpace(token), true
}

// certified says whether the caller showed a certificate, and why it isn't one of
// the role. The transport has checked who signed it, and until when.
func certified(ctx context.Context, role Role) (shown bool, err error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return false, errors.New("no peer")
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 {
		return false, errors.New("no certificate")
	}
	leaf := info.State.VerifiedChains[0][0]
	if slices.Contains(leaf.Subject.OrganizationalUnit, unit(role)) {
		return true, nil
	}
	return true, fmt.Errorf("the certificate of %q has no organizational unit %s", leaf.Subject.CommonName, unit(role))
}
