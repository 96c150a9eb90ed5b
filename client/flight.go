package client

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// dialFlight connects to the Flight service of an executor.
func (c *Client) dialFlight(addr string) (*grpc.ClientConn, error) {
	return grpc.NewClient(addr, append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
	}, c.opts.dial...)...)
}

// partitionReader reads result partitions, with one connection for each executor.
type partitionReader struct {
	client *Client
	conns  map[string]*grpc.ClientConn
}

func newPartitionReader(c *Client) *partitionReader {
	return &partitionReader{client: c, conns: map[string]*grpc.ClientConn{}}
}

func (r *partitionReader) close() {
	for _, conn := range r.conns {
		_ = conn.Close() // nothing was sent that could be lost
	}
}

// read gives the batches of one partition and checks that they are all there.
// more is false when the caller wants no more.
func (r *partitionReader) read(ctx context.Context, p *firnpb.ResultPartition, yield func(arrow.RecordBatch, error) bool) (more bool, err error) {
	conn := r.conns[p.GetAddress()]
	if conn == nil {
		if conn, err = r.client.dialFlight(p.GetAddress()); err != nil {
			return false, lostRows(p, err)
		}
		r.conns[p.GetAddress()] = conn
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream when the caller stops in the middle
	stream, err := flight.NewClientFromConn(conn, nil).DoGet(ctx, &flight.Ticket{Ticket: p.GetTicket()})
	if err != nil {
		return false, r.failed(ctx, p, err)
	}
	rd, err := flight.NewRecordReader(stream)
	if err != nil {
		return false, r.failed(ctx, p, err)
	}
	defer rd.Release()
	var rows int64
	for rd.Next() {
		rows += rd.RecordBatch().NumRows()
		if !yield(rd.RecordBatch(), nil) {
			return false, nil
		}
	}
	if err := rd.Err(); err != nil {
		return false, r.failed(ctx, p, err)
	}
	if rows != p.GetRows() {
		return false, lostRows(p, fmt.Errorf("%d of %d rows came", rows, p.GetRows()))
	}
	return true, nil
}

func (r *partitionReader) failed(ctx context.Context, p *firnpb.ResultPartition, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return lostRows(p, wire.FromStatus(err))
}
