package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/internal/cluster"
	"github.com/firn-project/firn/internal/config"
	"github.com/spf13/cobra"
)

const (
	// defaultDir is where the embedded cluster lives unless told otherwise.
	defaultDir = "./firn-data"
	// closeTimeout bounds how long the embedded cluster takes to close.
	closeTimeout = time.Minute
)

// target is whom a command talks to: a scheduler, or the embedded cluster of a
// directory.
type target struct {
	server, dir string
	executors   int
	delivery    string
	dial        dialFlags
}

// flags adds --server and --dir.
func (t *target) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.server, "server", "", "`HOST:PORT` of a scheduler")
	cmd.Flags().StringVar(&t.dir, "dir", defaultDir, "without --server: `directory` of the embedded cluster")
	cmd.Flags().StringVar(&t.delivery, "delivery", string(client.DeliverStream), "how job status comes: `stream` or poll")
	t.dial.flags(cmd)
}

// session is a connection and what has to be closed with it.
type session struct {
	*client.Client
	// embedded is nil when the scheduler is another process.
	embedded *cluster.Cluster
}

// open connects, starting the embedded cluster if there is no server. The caller
// closes the session.
func (a *app) open(cmd *cobra.Command, t target) (*session, error) {
	if a.given["server"] && a.given["dir"] {
		return nil, usage(cmd, "--server and --dir exclude each other")
	}
	if a.given["dir"] {
		t.server = "" // it came from a variable
	}
	opts := []client.Option{client.WithDelivery(client.Delivery(t.delivery))}
	if t.delivery != string(client.DeliverStream) && t.delivery != string(client.DeliverPoll) {
		return nil, usage(cmd, "--delivery %q: want stream or poll", t.delivery)
	}
	if t.server != "" {
		if err := config.CheckAddress(t.server); err != nil {
			return nil, usage(cmd, "--server %s", err)
		}
		dial, err := a.dialOptions(t.dial)
		if err != nil {
			return nil, err
		}
		c, err := client.Dial(cmd.Context(), t.server, append(opts, dial...)...)
		if err != nil {
			return nil, err
		}
		return &session{Client: c}, nil
	}
	logger, err := a.logger(cmd)
	if err != nil {
		return nil, err
	}
	embedded, err := cluster.Start(cmd.Context(), cluster.Config{Dir: t.dir, Executors: t.executors, Logger: logger})
	if err != nil {
		return nil, startError(cmd.Context(), "embedded cluster", err)
	}
	c, err := client.Dial(cmd.Context(), embedded.Addr(), append(opts, client.WithToken(embedded.Token()))...)
	s := &session{Client: c, embedded: embedded}
	if err != nil {
		return nil, errors.Join(err, s.close(a.giveUp))
	}
	return s, nil
}

// close ends the connection and the embedded cluster.
func (s *session) close(ctx context.Context) error {
	var errs []error
	if s.Client != nil {
		errs = append(errs, s.Close())
	}
	if s.embedded != nil {
		ctx, cancel := context.WithTimeout(ctx, closeTimeout)
		defer cancel()
		if err := s.embedded.Close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("close the embedded cluster: %w", err))
		}
	}
	return errors.Join(errs...)
}

// with opens a session for one call.
func (a *app) with(cmd *cobra.Command, t target, call func(context.Context, *session) error) error {
	s, err := a.open(cmd, t)
	if err != nil {
		return err
	}
	err = call(cmd.Context(), s)
	if cerr := s.close(a.giveUp); err == nil {
		err = cerr
	}
	return err
}
