package wire

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// MaxMessage is the largest gRPC message in bytes, both ways. Batches are about
// a MiB; a single row may be larger, and gRPC's default of 4 MiB breaks on it.
const MaxMessage = 256 << 20

// MaxRequest is the largest message in bytes that a scheduler takes.
const MaxRequest = 64 << 20

// maxCalls is how many calls of one connection a scheduler works at.
const maxCalls = 1000

// handshake is how long a connection may take to begin.
const handshake = 20 * time.Second

// maxHeaders bounds the headers of a call in bytes: there's a token or a ticket in
// them, or an error with its texts.
const maxHeaders = 256 << 10

// window is the HTTP/2 flow-control window. With the default of 64 KiB a stream
// of 1 MiB batches stalls and its memory grows.
const window = 8 << 20

const (
	keepaliveEvery = 10 * time.Second
	ioBuffer       = 1 << 20
)

// ServerOptions are the gRPC settings that every server of Firn uses.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(MaxMessage),
		grpc.MaxSendMsgSize(MaxMessage),
		grpc.ConnectionTimeout(handshake),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.InitialWindowSize(window),
		grpc.InitialConnWindowSize(window),
		grpc.ReadBufferSize(ioBuffer),
		grpc.WriteBufferSize(ioBuffer),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveEvery / 2, PermitWithoutStream: true}),
	}
}

// SchedulerOptions are settings of the scheduler's server beside ServerOptions. What
// it is sent is a statement, a plan or statuses, and not batches of rows.
func SchedulerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.MaxRecvMsgSize(MaxRequest), grpc.MaxConcurrentStreams(maxCalls)}
}

// DialOptions are the gRPC settings that every client of Firn uses. A peer that
// vanished without a word is noticed by keepalives; one that comes back is
// reached again within a second.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessage), grpc.MaxCallSendMsgSize(MaxMessage)),
		grpc.WithInitialWindowSize(window),
		grpc.WithInitialConnWindowSize(window),
		grpc.WithReadBufferSize(ioBuffer),
		grpc.WithWriteBufferSize(ioBuffer),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveEvery, Timeout: keepaliveEvery / 2}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
	}
}

// Ended is why ctx ended; nil while it hasn't. gRPC gives servers the deadline as well,
// and they may say that it has passed before the timer of ctx does.
func Ended(ctx context.Context) error {
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		<-ctx.Done()
	}
	return context.Cause(ctx)
}
