package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/status"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire/openwrite"
)

// writeAction makes one call of the open write protocol. A call that nobody
// answered is sent again a few times: all of them may be.
func (c *Client) writeAction(ctx context.Context, action string, body any) (openwrite.Answer, error) {
	var a openwrite.Answer
	raw, err := json.Marshal(body)
	if err != nil {
		return a, &commit.Error{Code: commit.CodeBadCall, Op: "call", Object: action, Cause: err}
	}
	err = c.again(ctx, func() error {
		a, err = c.doAction(ctx, action, raw)
		return err
	})
	return a, err
}

// again makes a call, and makes it again for as long as nobody answers it.
func (c *Client) again(ctx context.Context, call func() error) error {
	for failures := 0; ; failures++ {
		err := call()
		if err == nil {
			return nil
		}
		if !retryable(err) || failures >= lostContact || ctx.Err() != nil || !sleep(ctx, c.opts.poll<<failures) {
			return c.fromFlight(ctx, err)
		}
	}
}

// fromFlight turns the error of a call of the protocol into the one that the
// scheduler made, if it made one.
func (c *Client) fromFlight(ctx context.Context, err error) error {
	if e, ok := errors.AsType[*commit.Error](err); ok {
		return e
	}
	if ctx.Err() == nil {
		if f := openwrite.FaultIn(status.Convert(err).Message()); f != nil {
			return f.Err()
		}
	}
	return c.fromRPC(ctx, err)
}

// doAction makes one call, once.
func (c *Client) doAction(ctx context.Context, action string, body []byte) (a openwrite.Answer, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := flight.NewClientFromConn(c.conn, nil).DoAction(ctx, &flight.Action{Type: action, Body: body})
	if err != nil {
		return a, err
	}
	r, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		return a, badAnswer("call "+action, errors.New("there was no answer"))
	}
	if err != nil {
		return a, err
	}
	return readAnswer(action, r.GetBody())
}

// readAnswer reads what a scheduler answered. Fields that aren't known are those of
// a later scheduler.
func readAnswer(action string, body []byte) (a openwrite.Answer, err error) {
	if err := json.Unmarshal(body, &a); err != nil {
		return a, badAnswer("call "+action, err)
	}
	if a.Version != openwrite.Version {
		return a, badAnswer("call "+action, fmt.Errorf("the answer is of version %d of the protocol, and this is version %d", a.Version, openwrite.Version))
	}
	return a, nil
}
