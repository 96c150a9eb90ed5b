package flightsqltest

import (
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Left is how many callers of GetFlightInfo went before its answer.
func (s *Server) Left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left
}

// take says which stream a ticket begins.
func (s *Server) take(ticket string) (r Reading, err error) {
	if _, err := fmt.Sscanf(ticket, "%d/%d", &r.Execution, &r.Endpoint); err != nil {
		return r, status.Error(codes.InvalidArgument, "that is no ticket")
	}
	if s.Of != nil {
		return s.Of.take(ticket)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	until, known := s.expires[ticket]
	if !known || !until.IsZero() && time.Now().After(until) || s.SingleUse && s.used[ticket] > 0 {
		return r, status.Error(codes.NotFound, "the ticket isn't known (any more)")
	}
	s.used[ticket]++
	r.Read = s.used[ticket]
	return r, nil
}
