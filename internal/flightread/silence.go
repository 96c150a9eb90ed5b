package flightread

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

// question is a call that no server knows. Its refusal is the answer.
const question = "/firn.v1.Question/AreYouThere"

// watch ends the reader when nothing comes from the executor. A process that stands
// still keeps its connections, so half of the time that it may be silent it is
// waited for, and the other half it is asked. The watch ends with what it returns.
func (r *Reader) watch() (end func()) {
	if r.reach() != nil {
		return func() {} // the client is closed, and says so itself
	}
	conn := r.peer.conn
	half := r.client.cfg.Silence / 2
	ctx, cancel := context.WithCancel(r.ctx)
	var again *time.Timer
	armed := make(chan struct{})
	again = time.AfterFunc(half, func() {
		<-armed
		if ctx.Err() == nil && !there(ctx, conn, half) && ctx.Err() == nil {
			r.silent.Store(true)
			r.cancel()
			return
		}
		if ctx.Err() == nil {
			again.Reset(half)
		}
	})
	close(armed)
	return func() {
		cancel()
		again.Stop()
	}
}

// there says whether the executor answers within a time. What it answers doesn't
// matter.
func there(ctx context.Context, conn *grpc.ClientConn, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	_ = conn.Invoke(ctx, question, &emptypb.Empty{}, &emptypb.Empty{}, grpc.WaitForReady(true))
	return ctx.Err() == nil
}
