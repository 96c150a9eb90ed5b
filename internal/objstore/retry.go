package objstore

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// class says what a failed request means for the next one.
type class int

const (
	// final: the same request fails again.
	final class = iota
	// throttled: the store did nothing, and wants to be asked later.
	throttled
	// unclear: the store failed, or the connection broke or stalled; the request
	// may have taken effect, or may yet.
	unclear
)

// refusals are the codes with which stores turn a request away untouched.
var refusals = map[string]bool{
	"SlowDown": true, "SlowDownRead": true, "SlowDownWrite": true, "ServerBusy": true, "ServiceUnavailable": true, "Throttling": true,
	"ThrottlingException": true, "TooManyRequests": true, "RequestLimitExceeded": true, "BandwidthLimitExceeded": true,
	// Two conditional writes of one name met; the store did neither of ours.
	"ConditionalRequestConflict": true, "OperationAborted": true,
}

// classify sorts an error of a request that was sent once.
func classify(err error) class {
	if errors.Is(err, context.Canceled) {
		return final
	}
	if unsent(err) {
		return throttled
	}
	if ae, ok := errors.AsType[smithy.APIError](err); ok && refusals[ae.ErrorCode()] {
		return throttled
	}
	if re, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		switch status := re.HTTPStatusCode(); {
		case status == http.StatusTooManyRequests:
			return throttled
		case status == http.StatusRequestTimeout, status >= http.StatusInternalServerError && status != http.StatusNotImplemented && status != http.StatusInsufficientStorage:
			return unclear
		case status >= http.StatusMultipleChoices:
			return final
		}
		return unclear // a reply that broke off
	}
	if _, ok := errors.AsType[net.Error](err); ok || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return unclear
	}
	if _, ok := errors.AsType[*smithyhttp.RequestSendError](err); ok {
		return unclear
	}
	return final
}

// unsent says that there was no connection to send a request on.
func unsent(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// retryer is the SDK's for requests that may be repeated: reads, parts of uploads,
// deletes. Its own token bucket would end the retries of a store that is throttled
// for long, so there's none.
func (t *tuning) retryer(classify func(error) class) aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = t.attempts
		o.RateLimiter = ratelimit.None
		o.Backoff = retry.BackoffDelayerFunc(func(attempt int, _ error) (time.Duration, error) { return t.delay(attempt), nil })
		o.Retryables = []retry.IsErrorRetryable{retry.IsErrorRetryableFunc(func(err error) aws.Ternary {
			return aws.BoolTernary(classify(err) != final)
		})}
	})
}

// once is for requests that the SDK must not repeat.
func once(o *s3.Options) { o.Retryer = aws.NopRetryer{} }

// delay is the wait after the nth try, from 1: it doubles, and is jittered.
func (t *tuning) delay(attempt int) time.Duration {
	d := t.longest
	if shift := attempt - 1; shift < 20 {
		d = min(d, t.pause<<shift)
	}
	return d/2 + rand.N(d/2+1)
}

// wait sleeps before the next try, unless the context ends first.
func (t *tuning) wait(ctx context.Context, attempt int) error {
	timer := time.NewTimer(t.delay(attempt))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
