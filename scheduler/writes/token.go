package writes

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/firn-project/firn/internal/wire"
)

// tokenPrefix tells a worker token from others, tokenDomain its signature from any
// other use of the scheduler's key.
const (
	tokenPrefix = "fw1."
	tokenDomain = "firn.worker-token.v1"
)

// workerToken is what a worker token says.
type workerToken struct {
	WriteID string `json:"w"`
	// Expires is in milliseconds since 1970.
	Expires int64 `json:"x"`
}

func signToken(s *wire.Signer, writeID string, expires time.Time) string {
	raw, err := json.Marshal(workerToken{writeID, expires.UnixMilli()})
	if err != nil { // a text and a number
		return ""
	}
	return tokenPrefix + s.SignText(tokenDomain, raw)
}

// bearerOf is the token that a call shows, and whether it is a worker's.
func bearerOf(ctx context.Context) (token string, worker bool) {
	values := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "bearer") {
		return "", false
	}
	token = strings.TrimSpace(token)
	return token, strings.HasPrefix(token, tokenPrefix)
}

// verifyToken reads a worker token that this scheduler has signed and that holds.
func verifyToken(v *wire.Verifier, token string, now time.Time) (workerToken, error) {
	var t workerToken
	text, ok := strings.CutPrefix(token, tokenPrefix)
	if !ok {
		return t, wire.ErrTicket
	}
	raw, err := v.VerifyText(tokenDomain, text)
	if err != nil {
		return t, err
	}
	if json.Unmarshal(raw, &t) != nil || t.WriteID == "" || !now.Before(time.UnixMilli(t.Expires)) {
		return workerToken{}, wire.ErrTicket
	}
	return t, nil
}
