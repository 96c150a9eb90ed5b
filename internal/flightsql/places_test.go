package flightsql_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/flightsql"
	"github.com/firn-project/firn/internal/flightsql/flightsqltest"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
)

// asked notes which places were asked, in their order.
type asked struct {
	mu    sync.Mutex
	names strings.Builder
}

func (a *asked) note(name string) (before int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before = strings.Count(a.names.String(), name)
	a.names.WriteString(name)
	return before
}

func (a *asked) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.names.String()
}

// does is what a place does: after so many batches it fails with the error, the first
// times (each time when 0). otherwise has it give other columns.
type does struct {
	after     int
	err       error
	times     int
	otherwise bool
}

func says(code codes.Code, words string) does { return does{err: status.Error(code, words)} }

func (d does) at(batches int) does { d.after = batches; return d }

func (d does) once() does { d.times = 1; return d }

// serveAt starts a place of an engine and gives its URI.
func serveAt(t *testing.T, name string, d does, of *flightsqltest.Server, a *asked) string {
	t.Helper()
	s := &flightsqltest.Server{Of: of, Rows: of.Rows, BatchRows: of.BatchRows, Get: func(flightsqltest.Reading) (int, error) {
		if before := a.note(name); d.times > 0 && before >= d.times {
			return 0, nil
		}
		return d.after, d.err
	}}
	if d.otherwise {
		s.Batch = func(flightsqltest.Reading, int, int) arrow.RecordBatch {
			b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(flightsqltest.Schema.Fields()[:2], nil))
			defer b.Release()
			return b.NewRecordBatch()
		}
	}
	addr, stop, err := s.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return "grpc://" + addr
}

// attempts reads an endpoint as the attempts of a task do, at most four that count and
// none after an error that another doesn't help. It gives the rows of the last one.
func attempts(t *testing.T, e *flightsql.Engine, x *flightsql.Execution, f plan.SourceFile, a *asked) (ns []int64, err error) {
	t.Helper()
	var before []*firnpb.SourceBreak
	for failures := 0; failures < 4; {
		if failures+len(before) > 0 {
			a.note(" ")
		}
		var s *flightsql.Stream
		if s, err = e.Read(t.Context(), f, x.Columns, before, false); err == nil {
			if ns, err = drain(t.Context(), s); err == nil {
				return ns, nil
			}
		}
		broke, ok := errors.AsType[*wire.SourceBreakError](err)
		if !ok || wire.Class(err) == wire.ClassNotRetryable {
			return nil, err
		}
		if broke.Break.GetLeft() == 0 {
			failures++
		}
		before = append(before, broke.Break)
	}
	return nil, err
}

// TestPlaces: each place of an endpoint is asked in turn, whatever the one before said;
// what is final, or lost, is so when all have said it; and rows of two places never
// come together.
func TestPlaces(t *testing.T) {
	good := does{}
	const max = "grpc: received message larger than max (2 vs. 1)"
	for name, c := range map[string]struct {
		places []does // named a, b, …
		asked  string // in attempts
		code   commit.Code
		words  []string
	}{
		"the first is good":                   {[]does{good, good}, "a", "", nil},
		"not permitted":                       {[]does{says(codes.PermissionDenied, "no"), good}, "ab", "", nil},
		"serves no rows":                      {[]does{says(codes.Unimplemented, "no"), good}, "ab", "", nil},
		"doesn't know the ticket":             {[]does{says(codes.NotFound, "no"), good}, "ab", "", nil},
		"doesn't know who asks":               {[]does{says(codes.Unauthenticated, "no"), good}, "ab", "", nil},
		"can't be reached":                    {[]does{says(codes.Unavailable, "no"), good}, "ab", "", nil},
		"too large at opening":                {[]does{says(codes.ResourceExhausted, max), good}, "ab", "", nil},
		"other columns":                       {[]does{{otherwise: true}, good}, "ab", "", nil},
		"the third":                           {[]does{says(codes.Unimplemented, "no"), says(codes.NotFound, "no"), good}, "abc", "", nil},
		"breaks":                              {[]does{says(codes.Internal, "died").at(2), good}, "a b", "", nil},
		"breaks, not there":                   {[]does{says(codes.NotFound, "died").at(2), good}, "a b", "", nil},
		"breaks, too large":                   {[]does{says(codes.ResourceExhausted, max).at(2), good}, "a b", "", nil},
		"refused, breaks":                     {[]does{says(codes.PermissionDenied, "no"), says(codes.Internal, "died").at(1), good}, "ab ac", "", nil},
		"five that break":                     {slices.Concat(slices.Repeat([]does{says(codes.Internal, "died").at(1)}, 5), []does{good}), "a b c d e f", "", nil},
		"the good one breaks once":            {[]does{says(codes.Unimplemented, "no"), says(codes.Internal, "died").at(1).once()}, "ab ab", "", nil},
		"only the one that broke has it":      {[]does{says(codes.Internal, "died").at(1).once(), says(codes.NotFound, "no")}, "a ba", "", nil},
		"a refusal and a short absence":       {[]does{says(codes.PermissionDenied, "no"), says(codes.Unavailable, "no").once()}, "abb", "", nil},
		"both refuse":                         {[]does{says(codes.PermissionDenied, "not yours"), says(codes.Unimplemented, "no rows here")}, "ab", commit.CodeFlightQuery, []string{"not yours", "no rows here"}},
		"both refuse, the other way round":    {[]does{says(codes.Unimplemented, "no rows here"), says(codes.PermissionDenied, "not yours")}, "ab", commit.CodeFlightAuth, []string{"not yours", "no rows here"}},
		"neither knows the ticket":            {[]does{says(codes.NotFound, "no a"), says(codes.NotFound, "no b")}, "ababab", commit.CodeFlightLost, []string{"no a", "no b"}},
		"a refusal and a lost ticket":         {[]does{says(codes.PermissionDenied, "not yours"), says(codes.NotFound, "no b")}, "abbb", commit.CodeFlightLost, []string{"not yours", "no b"}},
		"a lost ticket and a refusal":         {[]does{says(codes.NotFound, "no a"), says(codes.PermissionDenied, "not yours")}, "abaa", commit.CodeFlightLost, []string{"no a", "not yours"}},
		"an absence and a lost ticket":        {[]does{says(codes.Unavailable, "down"), says(codes.NotFound, "no b")}, "abababababab", commit.CodeFlightLost, []string{"down", "no b"}},
		"too large and a lost ticket":         {[]does{says(codes.ResourceExhausted, max).at(1), says(codes.NotFound, "no b")}, "a bbb", commit.CodeFlightLost, []string{max, "no b"}},
		"too large everywhere":                {[]does{says(codes.ResourceExhausted, max).at(1), says(codes.ResourceExhausted, max).at(2)}, "a b", commit.CodeFlightTooLarge, []string{max}},
		"too large, and refused":              {[]does{says(codes.ResourceExhausted, max).at(1), says(codes.PermissionDenied, "not yours")}, "a b", commit.CodeFlightAuth, []string{max, "not yours"}},
		"too large, alone":                    {[]does{says(codes.ResourceExhausted, max).at(1)}, "a", commit.CodeFlightTooLarge, []string{max}},
		"both break":                          {[]does{says(codes.Internal, "died in a").at(1), says(codes.Internal, "died in b").at(2)}, "a b a b a", commit.CodeFlightRead, []string{"died in a", "died in b"}},
		"nobody knows who asks":               {[]does{says(codes.Unauthenticated, "who? a"), says(codes.Unauthenticated, "who? b")}, "ab", "", []string{"who? a", "who? b"}},
		"one doesn't know who asks, one away": {[]does{says(codes.Unauthenticated, "who? a"), says(codes.Unavailable, "down")}, "ab", "", []string{"who? a", "down"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home := &flightsqltest.Server{Endpoints: 1, Rows: 10, BatchRows: 2}
			a, uris := &asked{}, []string(nil)
			for i, d := range c.places {
				uris = append(uris, serveAt(t, string(rune('a'+i)), d, home, a))
			}
			home.Locations = func(int) []string { return uris }
			e := start(t, home, func(a *flightsql.Access) { a.Locations = []string{"127.0.0.1:*"} })
			x, err := e.Execute(t.Context(), "q")
			if err != nil {
				t.Fatal(err)
			}
			got, err := attempts(t, e, x, x.Endpoints[0], a)
			if a.String() != c.asked {
				t.Errorf("asked %q, want %q", a, c.asked)
			}
			if len(c.words) == 0 {
				if err != nil || !slices.Equal(got, upTo(10)) {
					t.Errorf("got %v, %v", got, err)
				}
				return
			}
			for _, uri := range uris {
				c.words = append(c.words, uri+" said ")
			}
			wantCode(t, err, c.code, c.words...)
			if c.code == "" && !errors.Is(err, flightsql.ErrUnauthenticated) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestPlacesOfOtherParts: where a part broke off, others are read later too; a break of
// an earlier execution says no more than that.
func TestPlacesOfOtherParts(t *testing.T) {
	home, a := &flightsqltest.Server{Endpoints: 2, Rows: 4, BatchRows: 2}, &asked{}
	uris := []string{serveAt(t, "a", says(codes.ResourceExhausted, "grpc: received message larger than max").at(1), home, a), serveAt(t, "b", says(codes.NotFound, "no").once(), home, a)}
	home.Locations = func(int) []string { return uris }
	e := start(t, home, func(a *flightsql.Access) { a.Locations = []string{"127.0.0.1:*"} })
	x, err := e.Execute(t.Context(), "q")
	if err != nil {
		t.Fatal(err)
	}
	s, err := e.Read(t.Context(), x.Endpoints[0], x.Columns, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	_, err = drain(t.Context(), s)
	broke, ok := errors.AsType[*wire.SourceBreakError](err)
	if !ok || broke.Break.GetLeft() != 1 || broke.Break.GetCode() != string(commit.CodeFlightTooLarge) || commit.CodeOf(err) != commit.CodeFlightRead {
		t.Fatalf("got %v, %v", broke, err)
	}
	// b is asked first and doesn't know the ticket: a has still to be asked.
	s, err = e.Read(t.Context(), x.Endpoints[1], x.Columns, []*firnpb.SourceBreak{broke.Break}, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = drain(t.Context(), s); commit.CodeOf(err) != commit.CodeFlightRead || a.String() != "aba" {
		t.Errorf("asked %s: %v", a, err)
	}
	for range 2 { // the same of what is known of an earlier execution
		if s, err = e.Read(t.Context(), x.Endpoints[0], x.Columns, []*firnpb.SourceBreak{{Location: uris[0]}}, false); err != nil {
			t.Fatal(err)
		}
		if ns, err := drain(t.Context(), s); err != nil || len(ns) != 4 {
			t.Errorf("got %v, %v", ns, err)
		}
	}
	if a.String() != "ababb" {
		t.Errorf("asked %s", a)
	}
}

// TestManyPlaces: of as many as an engine may name, some are asked, and those that
// aren't allowed are told of.
func TestManyPlaces(t *testing.T) {
	home := &flightsqltest.Server{Endpoints: 1, Rows: 1, Locations: func(int) []string {
		uris := []string{"grpc://elsewhere.example:1"}
		for i := range 1000 {
			uris = append(uris, fmt.Sprintf("grpc://127.0.0.%d:1", 2+i%250), fmt.Sprintf("http://%d", i))
		}
		return uris
	}}
	e := start(t, home, func(a *flightsql.Access) {
		for i := range 250 {
			a.Locations = append(a.Locations, fmt.Sprintf("127.0.0.%d:1", 2+i))
		}
	})
	x, err := e.Execute(t.Context(), "q")
	if err != nil {
		t.Fatal(err)
	}
	_, err = all(t.Context(), e, x)
	wantCode(t, err, commit.CodeFlightLost, "elsewhere.example:1 isn't asked")
	if said, not := strings.Count(err.Error(), " said "), strings.Count(err.Error(), "isn't asked"); said != 16 || not != 3 {
		t.Errorf("%d asked, %d not: %v", said, not, err)
	}
}
