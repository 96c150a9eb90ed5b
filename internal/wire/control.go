package wire

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/firn-project/firn/internal/wire/firnpb"
	"google.golang.org/grpc/metadata"
)

// PurposeControl is the purpose of the ticket by which the scheduler names itself
// to an executor.
const PurposeControl = "control"

// controlKey is the header that carries the ticket.
const controlKey = "firn-control-bin"

// controlLife is how long a control ticket is good; it is renewed at half of
// that.
const controlLife = 10 * time.Minute

// ControlCredentials name the scheduler to one executor with each call: a ticket
// for that executor, signed with the key whose public half the executor got when
// it registered. They implement credentials.PerRPCCredentials and are safe for
// concurrent use.
type ControlCredentials struct {
	signer   *Signer
	executor string

	mu     sync.Mutex
	ticket string
	renew  time.Time
}

// NewControlCredentials makes the credentials for calls to one executor.
func NewControlCredentials(s *Signer, executor string) *ControlCredentials {
	return &ControlCredentials{signer: s, executor: executor}
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (c *ControlCredentials) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); !now.Before(c.renew) {
		c.ticket = string(c.signer.Sign(&firnpb.Ticket{
			Purpose: PurposeControl, ExecutorId: c.executor, ExpiresUnixMs: now.Add(controlLife).UnixMilli(),
		}))
		c.renew = now.Add(controlLife / 2)
	}
	return map[string]string{controlKey: c.ticket}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials. Where
// plaintext is allowed is decided where connections are made.
func (*ControlCredentials) RequireTransportSecurity() bool { return false }

// ErrNotControl is the answer to a call that doesn't come from the scheduler.
var ErrNotControl = errors.New("the call doesn't come from the scheduler that this executor is registered at")

// VerifyControl checks that a call comes from the scheduler whose key v has, and
// is meant for the executor. The error is ErrNotControl.
func VerifyControl(ctx context.Context, v *Verifier, executor string, now time.Time) error {
	values := metadata.ValueFromIncomingContext(ctx, controlKey)
	if len(values) != 1 {
		return ErrNotControl
	}
	t, err := v.Verify([]byte(values[0]), now)
	if err != nil || t.GetPurpose() != PurposeControl || t.GetExecutorId() != executor {
		return ErrNotControl
	}
	return nil
}
