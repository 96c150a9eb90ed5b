package flightsql

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/flightsql/location"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
)

// places are where one endpoint can be read, in the order in which they are asked.
//
// Flight says that an endpoint can be read at any one of its locations. They are
// different servers, so what one says is about itself: a coordinator may serve no rows,
// a worker may not know the ticket any more, let nobody in, or send batches that are too
// large, and the next still gives the rows. From this follows:
//
//   - Each place is asked, in turn, whatever the one before said. The first that opens
//     and has the columns is read.
//   - A stream that breaks off later isn't continued elsewhere: nobody says that the
//     next place gives the rows in the same order, so that some would come twice and
//     others never. The attempt of the task fails, and what it made is dropped whole.
//     The next attempt is told of the break (firnpb.SourceBreak) and asks that place
//     after the others: those at which nothing broke first, then those at which other
//     parts broke, then those at which this one did, the earliest first.
//   - What doesn't get better by asking again (final) is the end only when every place
//     has said something like it. A place that has isn't asked again.
//   - The endpoint is lost, so that the whole query has to run again, when no place
//     opens for as long as it may still help to ask. One that says the ticket is unknown
//     loses nothing while another has it. And where one lets nobody in and the other
//     doesn't know the ticket, the endpoint is lost rather than refused: another
//     execution's ticket may be known there. It is the same in any order of places.
//   - All ends: rounds are bounded here, places by maxPlaces, and attempts by the
//     scheduler, which counts a break as a failure of the task except where a place
//     breaks for the first time while others haven't been tried (untried).
type places struct {
	e *Engine
	// part names the endpoint among all that a task reads.
	part string
	list []*place
	// refused are the locations that aren't asked, and why.
	refused []string
}

type place struct {
	at     location.Location
	answer answer
	// said is what it has answered last: here, or by a stream that broke off before.
	said string
	// err is that of this process; code what a final one comes to, and hint what to do.
	err  error
	code commit.Code
	hint string
	// order is the greater the later the place is asked, for breaks of before.
	order int
}

// answer is what came of asking a place.
type answer int

const (
	untried answer = iota
	// broke: a stream from there broke off in an earlier attempt.
	broke
	// away: it can't be reached, or not now. gone: it doesn't know the ticket.
	away
	gone
	// stranger: it doesn't know who asks.
	stranger
	// final: asking again doesn't help.
	final
)

// maxPlaces is how many locations of an endpoint are asked.
const maxPlaces = 16

// placesOf orders the locations of an endpoint by what has broken off before.
func (e *Engine) placesOf(f plan.SourceFile, before []*firnpb.SourceBreak) (*places, error) {
	at, refused, err := e.access.places(f.Endpoint.Locations)
	if err != nil {
		return nil, err
	}
	ticket := sha256.Sum256(f.Endpoint.Ticket)
	ps := &places{e: e, part: f.Path + " " + hex.EncodeToString(ticket[:8]), refused: refused}
	for _, l := range at[:min(len(at), maxPlaces)] {
		p := &place{at: l}
		for i, b := range before {
			switch {
			case b.GetLocation() != nameOf(l):
			case b.GetPart() != ps.part:
				p.order = max(p.order, i+1)
			default:
				p.order, p.answer, p.said = len(before)+i+1, broke, b.GetSaid()
				if p.code = commit.Code(b.GetCode()); p.code != "" {
					p.answer = final
				}
			}
		}
		ps.list = append(ps.list, p)
	}
	slices.SortStableFunc(ps.list, func(a, b *place) int { return a.order - b.order })
	return ps, nil
}

// round asks those places that it may help to ask, until one is open.
func (ps *places) round(ctx context.Context, f plan.SourceFile, want []plan.Column, fresh bool) (*Stream, error) {
	for _, p := range ps.list {
		if p.answer == final {
			continue
		}
		s, err := ps.e.open(ctx, p.at, f)
		if err == nil {
			if err = s.check(want); err == nil {
				s.places, s.place = ps, p
				return s, nil
			}
		}
		if cause := wire.Ended(ctx); cause != nil {
			return nil, cause
		}
		p.said, p.err = said(err).Error(), err
		p.answer, p.code, p.hint = judge(err, fresh)
	}
	return nil, nil
}

// judge says what an error at opening means.
func judge(err error, fresh bool) (answer, commit.Code, string) {
	if c := commit.CodeOf(err); c != "" {
		if wire.Class(err) == wire.ClassNotRetryable {
			return final, c, hintOf(err)
		}
		return away, "", ""
	}
	switch status.Code(err) {
	case codes.PermissionDenied:
		return final, commit.CodeFlightAuth, ""
	case codes.Unimplemented:
		return final, commit.CodeFlightQuery, ""
	case codes.Unauthenticated:
		if !fresh {
			return stranger, "", ""
		}
		return gone, "", ""
	case codes.NotFound, codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange:
		return gone, "", ""
	}
	if tooLarge(err) {
		return final, commit.CodeFlightTooLarge, smallerBatches
	}
	return away, "", ""
}

func hintOf(err error) string {
	if e, ok := errors.AsType[*commit.Error](err); ok {
		return e.Hint
	}
	return ""
}

// verdict says how it ends after so many rounds without a stream; nil: not yet.
func (ps *places) verdict(f plan.SourceFile, rounds int) error {
	switch {
	case ps.any(stranger):
		return fmt.Errorf("%w: %s", ErrUnauthenticated, ps.all())
	case ps.only(final):
		last := ps.list[len(ps.list)-1]
		for _, p := range ps.list {
			if p.err != nil {
				last = p // asked just now
			}
		}
		return ps.refusal(f, last)
	case rounds >= openTries, rounds >= goneTries && !ps.any(away):
		return &commit.Error{
			Code: commit.CodeFlightLost, Op: "read " + f.Path + " of", Object: "source " + ps.e.access.Name, Cause: errors.New(ps.all()),
			Hint: "Have the engine keep results for longer, or give Firn more slots so that they are read sooner.",
		}
	}
	return nil
}

// refusal is the error when all places have refused for good, p last.
func (ps *places) refusal(f plan.SourceFile, p *place) error {
	if len(ps.list) == 1 && commit.CodeOf(p.err) != "" {
		return p.err
	}
	return &commit.Error{
		Code: p.code, Op: "read " + f.Path + " of", Object: "source " + ps.e.access.Name, Cause: errors.New(ps.all()), Hint: p.hint,
	}
}

// broken is the error when the stream from p broke off: with a code when reading it
// again there doesn't help.
func (ps *places) broken(f plan.SourceFile, p *place, err error, code commit.Code, hint string) error {
	left := 0
	for _, o := range ps.list {
		if o != p && o.answer == untried {
			left++
		}
	}
	p.said, p.err, p.code, p.hint = said(err).Error(), err, code, hint
	if p.answer = broke; code != "" {
		p.answer = final
	}
	out := &wire.SourceBreakError{Break: &firnpb.SourceBreak{Part: ps.part, Location: nameOf(p.at), Said: p.said, Code: string(code), Left: uint32(left)}}
	if ps.only(final) {
		out.Cause = ps.refusal(f, p)
		return out
	}
	out.Cause = &commit.Error{
		Code: commit.CodeFlightRead, Op: "read " + f.Path + " of", Object: "source " + ps.e.access.Name, Cause: errors.New(ps.all()), Hint: hint,
	}
	return out
}

// nameOf is a location fit for a message: a URI may hold any bytes.
func nameOf(l location.Location) string { return shorten(l.String()) }

func (ps *places) any(a answer) bool {
	return slices.ContainsFunc(ps.list, func(p *place) bool { return p.answer == a })
}

func (ps *places) only(a answer) bool {
	return !slices.ContainsFunc(ps.list, func(p *place) bool { return p.answer != a })
}

// all names each location and what it said.
func (ps *places) all() string {
	var out []string
	for _, p := range ps.list {
		if p.answer != untried {
			out = append(out, nameOf(p.at)+" said "+p.said)
		}
	}
	return strings.Join(append(out, ps.refused...), "; ")
}
