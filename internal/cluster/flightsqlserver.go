package cluster

import (
	"context"
	"log/slog"

	"google.golang.org/grpc"

	"github.com/firn-project/firn/internal/security"
	"github.com/firn-project/firn/scheduler/flightsqlserver"
)

// startFlightSQL takes statements over Flight SQL where the configuration asks for it.
func (s *Scheduler) startFlightSQL(ctx context.Context, cfg SchedulerConfig, gate *security.Gate, dial []grpc.DialOption) error {
	if cfg.FlightSQL.Listen == "" {
		return nil
	}
	door, err := cfg.door(cfg.FlightSQL.Listen, gate)
	if err != nil {
		return err
	}
	s.sql, err = flightsqlserver.Start(ctx, flightsqlserver.Config{
		Listen: cfg.FlightSQL.Listen, Scheduler: s.Scheduler, Authenticate: door.gate.Check, TLS: door.tls,
		Keep: cfg.Results.Keep, Dial: dial, Logger: cfg.Logger,
	})
	if err != nil {
		return err
	}
	cfg.Logger.Info("Flight SQL ready", slog.String("address", s.sql.Addr()))
	return nil
}

// FlightSQLAddr is where Flight SQL clients connect, host:port; empty when it isn't
// served.
func (s *Scheduler) FlightSQLAddr() string {
	if s.sql == nil {
		return ""
	}
	return s.sql.Addr()
}

// closeFlightSQL ends Flight SQL before what it shows.
func (s *Scheduler) closeFlightSQL(ctx context.Context) error {
	if s.sql == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, httpGrace)
	defer cancel()
	return ended(s.sql.Close(ctx))
}
