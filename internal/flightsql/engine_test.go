package flightsql_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/flightsql"
	"github.com/firn-project/firn/internal/flightsql/flightsqltest"
	"github.com/firn-project/firn/plan"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start serves s and gives an engine for it, whose access edit may change.
func start(t *testing.T, s *flightsqltest.Server, edit func(*flightsql.Access)) *flightsql.Engine {
	t.Helper()
	addr, stop, err := s.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	a := flightsql.Access{Name: "engine", URI: "grpc://" + addr}
	if edit != nil {
		edit(&a)
	}
	e := flightsql.New(a)
	e.SetPause(time.Millisecond)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// all reads every endpoint of an execution, and gives the numbers of the rows.
func all(ctx context.Context, e *flightsql.Engine, x *flightsql.Execution) (ns []int64, err error) {
	for _, f := range x.Endpoints {
		s, err := e.Read(ctx, f, x.Columns, nil, false)
		if err != nil {
			return ns, err
		}
		got, err := drain(ctx, s)
		ns = append(ns, got...)
		if err != nil {
			return ns, err
		}
	}
	return ns, nil
}

func drain(ctx context.Context, s *flightsql.Stream) (ns []int64, err error) {
	defer s.Close()
	for {
		b, err := s.Next(ctx)
		if errors.Is(err, io.EOF) {
			return ns, nil
		}
		if err != nil {
			return ns, err
		}
		ns = append(ns, b.Column(2).(*array.Int64).Int64Values()...)
		b.Release()
	}
}

func upTo(n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = int64(i)
	}
	return out
}

func wantCode(t *testing.T, err error, code commit.Code, words ...string) {
	t.Helper()
	if commit.CodeOf(err) != code {
		t.Fatalf("got %v; want %s", err, code)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%v doesn't say %q", err, w)
		}
	}
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// TestExecuteAndRead: every shape of answer gives each row once, in the engine's order.
func TestExecuteAndRead(t *testing.T) {
	lies := func(i *flight.FlightInfo) { i.TotalRecords, i.TotalBytes = 1<<60, -7 }
	for name, s := range map[string]*flightsqltest.Server{
		"no endpoint":              {Rows: 10},
		"one":                      {Endpoints: 1, Rows: 10},
		"one without rows":         {Endpoints: 1},
		"a proxying server":        {Endpoints: 3, Rows: 2500, Ordered: true}, // its own address stands for no location
		"a thousand":               {Endpoints: 1000, Rows: 3},
		"polled":                   {Endpoints: 3, Rows: 2500, Polls: 4},
		"without polls":            {Endpoints: 3, Rows: 2500, Polls: -1},
		"blocking":                 {Endpoints: 2, Rows: 1, Polls: -1, Block: closed},
		"schema by GetSchema":      {Endpoints: 2, Rows: 5, NoSchema: true},
		"schema by the stream":     {Endpoints: 2, Rows: 5, NoSchema: true, NoGetSchema: true},
		"the same connection":      {Endpoints: 2, Rows: 5, Locations: func(int) []string { return []string{flight.LocationReuseConnection} }},
		"lies about totals":        {Endpoints: 2, Rows: 5, Info: lies},
		"no totals":                {Endpoints: 2, Rows: 5, NoTotals: true},
		"batches above 4 MiB":      {Endpoints: 1, Rows: 9, BatchRows: 3, Width: 4 << 20},
		"the second place is up":   {Endpoints: 2, Rows: 5, Locations: func(int) []string { return []string{"grpc://127.0.0.1:1", flight.LocationReuseConnection} }},
		"a place that isn't known": {Endpoints: 2, Rows: 5, Locations: func(int) []string { return []string{"grpc://elsewhere.example:1", flight.LocationReuseConnection} }},
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t, s, func(a *flightsql.Access) { a.Locations = []string{"127.0.0.1:1"} })
			x, err := e.Execute(t.Context(), "SELECT *\nFROM t -- ü")
			if err != nil {
				t.Fatal(err)
			}
			want := []plan.Column{{Name: "execution", Type: "BIGINT"}, {Name: "endpoint", Type: "BIGINT"}, {Name: "n", Type: "BIGINT"}, {Name: "s", Type: "VARCHAR"}}
			if !slices.Equal(x.Columns, want) || len(x.Endpoints) != s.Endpoints || s.Executions() != 1 || !slices.Equal(s.Queries(), []string{"SELECT *\nFROM t -- ü"}) {
				t.Fatalf("got columns %v, %d endpoints, %d executions of %q", x.Columns, len(x.Endpoints), s.Executions(), s.Queries())
			}
			if x.Bytes > 1<<50 || x.Bytes < -1 {
				t.Errorf("%d bytes are believed", x.Bytes)
			}
			got, err := all(t.Context(), e, x)
			if err != nil || !slices.Equal(got, upTo(s.Endpoints*s.Rows)) {
				t.Errorf("got %d rows of %d, %v", len(got), s.Endpoints*s.Rows, err)
			}
		})
	}
}

// TestAnswersThatCantBeRead are refused, with the code and what they are about.
func TestAnswersThatCantBeRead(t *testing.T) {
	to := func(uris ...string) func(int) []string { return func(int) []string { return uris } }
	many := func(i *flight.FlightInfo) { i.Endpoint = make([]*flight.FlightEndpoint, 100_001) }
	broken := func(i *flight.FlightInfo) { i.Schema = []byte{0xff, 0xff, 0xff, 0xff, 0xf0, 0xff, 0xff, 0x7f, 1, 2} }
	for name, c := range map[string]struct {
		s     *flightsqltest.Server
		code  commit.Code
		words string
	}{
		"refused":            {&flightsqltest.Server{Refuse: status.Error(codes.InvalidArgument, "no table nope")}, commit.CodeFlightQuery, "no table nope"},
		"refused when asked": {&flightsqltest.Server{Polls: -1, Refuse: status.Error(codes.Internal, "planner broke")}, commit.CodeFlightQuery, "planner broke"},
		"busy":               {&flightsqltest.Server{Refuse: status.Error(codes.ResourceExhausted, "queue is full")}, commit.CodeFlightUnavailable, "queue is full"},
		"not permitted":      {&flightsqltest.Server{Refuse: status.Error(codes.PermissionDenied, "not yours")}, commit.CodeFlightAuth, "not yours"},
		"no schema anywhere": {&flightsqltest.Server{NoSchema: true, NoGetSchema: true}, commit.CodeFlightSchema, "which columns"},
		"a broken schema":    {&flightsqltest.Server{Info: broken}, commit.CodeFlightSchema, "which columns"},
		"too many endpoints": {&flightsqltest.Server{Info: many}, commit.CodeFlightTooLarge, "100001 endpoints"},
		"another host":       {&flightsqltest.Server{Endpoints: 1, Locations: to("grpc://169.254.169.254:80")}, commit.CodeFlightNotAllowed, "169.254.169.254"},
		"another port":       {&flightsqltest.Server{Endpoints: 1, Locations: to("grpc://127.0.0.1:22")}, commit.CodeFlightNotAllowed, "127.0.0.1:22"},
		"a file":             {&flightsqltest.Server{Endpoints: 1, Locations: to("file:///etc/passwd")}, commit.CodeFlightNotAllowed, "scheme"},
		"a socket":           {&flightsqltest.Server{Endpoints: 1, Locations: to("grpc+unix:///var/run/docker.sock")}, commit.CodeFlightNotAllowed, "scheme"},
		"a user":             {&flightsqltest.Server{Endpoints: 1, Locations: to("grpc://a@127.0.0.1:1")}, commit.CodeFlightNotAllowed, "user"},
		"the web":            {&flightsqltest.Server{Endpoints: 1, Locations: to("https://127.0.0.1/x")}, commit.CodeFlightNotAllowed, "scheme"},
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t, c.s, nil)
			_, err := e.Execute(t.Context(), "SELECT 1")
			wantCode(t, err, c.code, c.words, "engine")
		})
	}
}

// TestPermits: answers lead to the source's own address and to its locations, never
// from TLS to plaintext, and to another machine in plaintext only if that is allowed.
func TestPermits(t *testing.T) {
	locations := []string{"*.lake.example:31337", "10.0.0.1:*", "127.0.0.2:*"}
	for name, c := range map[string]struct {
		access flightsql.Access
		uris   map[string]bool
	}{
		"TLS": {flightsql.Access{Name: "e", URI: "grpc+tls://Coord.lake.example:443", Locations: locations, AllowPlaintext: true}, map[string]bool{
			"grpc+tls://coord.lake.example:443": true, "grpc+tls://w1.lake.example:31337": true, "grpc+tls://a.b.lake.example:31337": true, "grpc+tls://10.0.0.1:9": true,
			"grpc+tls://W1.LAKE.example:31337": true, "grpc://w1.lake.example:31337": false, "grpc+tls://lake.example:31337": false,
			"grpc+tls://w1.lake.example:80": false, "grpc+tls://evil-lake.example:31337": false, "grpc+tls://w1.lake.example.evil:31337": false,
			"grpc+tls://10.0.0.2:9": false, "grpc://coord.lake.example:443": false, "grpc+tls://w1.lake.example:31337@evil:1": false,
		}},
		"plaintext on this machine": {flightsql.Access{Name: "e", URI: "grpc://127.0.0.1:1", Locations: locations}, map[string]bool{
			"grpc://127.0.0.1:1": true, "grpc://127.0.0.2:9": true, "grpc+tls://w1.lake.example:31337": true,
			"grpc://w1.lake.example:31337": false, "grpc://10.0.0.1:9": false, "grpc+tcp://10.0.0.1:9": false,
		}},
		"plaintext is allowed": {flightsql.Access{Name: "e", URI: "grpc://10.0.0.7:1", Locations: locations, AllowPlaintext: true}, map[string]bool{
			"grpc://10.0.0.7:1": true, "grpc://w1.lake.example:31337": true, "grpc://10.0.0.1:9": true, "grpc://10.0.0.2:9": false,
		}},
	} {
		for uri, ok := range c.uris {
			e := flightsql.New(c.access)
			_, err := e.Read(canceled(t), plan.SourceFile{Path: "endpoint 0", Endpoint: &plan.FlightEndpoint{Locations: []string{uri}}}, nil, nil, false)
			if refused := commit.CodeOf(err) == commit.CodeFlightNotAllowed; refused == ok {
				t.Errorf("%s: %s: %v", name, uri, err)
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// TestWhoAsks: tokens, users and passwords, by a handshake or with each call.
func TestWhoAsks(t *testing.T) {
	s := &flightsqltest.Server{Endpoints: 2, Rows: 3, Token: "canary"}
	e := start(t, s, func(a *flightsql.Access) { a.Authorization = "Bearer canary" })
	x, err := e.Execute(t.Context(), "q")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := all(t.Context(), e, x); err != nil || len(got) != 6 {
		t.Errorf("got %v, %v", got, err)
	}
	stranger := start(t, s, func(a *flightsql.Access) { a.Authorization = "Bearer canary-of-another" })
	_, err = stranger.Execute(t.Context(), "q")
	wantCode(t, err, commit.CodeFlightAuth, "who are you")
	if strings.Contains(err.Error(), "canary") {
		t.Errorf("a secret stands in %v", err)
	}
	_, err = stranger.Read(t.Context(), x.Endpoints[0], x.Columns, nil, false)
	if !errors.Is(err, flightsql.ErrUnauthenticated) {
		t.Errorf("got %v", err)
	}
	_, err = stranger.Read(t.Context(), x.Endpoints[0], x.Columns, nil, true)
	wantCode(t, err, commit.CodeFlightLost)
	for _, noLogin := range []bool{false, true} {
		s := &flightsqltest.Server{Endpoints: 1, Rows: 3, User: "u", Password: "p:w", NoLogin: noLogin}
		var access flightsql.Access
		start(t, s, func(a *flightsql.Access) { access = *a })
		shows, err := flightsql.Login(t.Context(), access, "u", "p:w")
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(shows, "Basic ") != noLogin {
			t.Errorf("shows %q", shows)
		}
		access.Authorization = shows
		e := flightsql.New(access)
		if _, err := e.Execute(t.Context(), "q"); err != nil {
			t.Error(err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if _, err := flightsql.Login(t.Context(), access, "u", "wrong"); !noLogin {
			wantCode(t, err, commit.CodeFlightAuth)
		}
	}
}

// TestTickets: what can't be read any more is lost, what broke off is to be read again.
func TestTickets(t *testing.T) {
	used := &flightsqltest.Server{Endpoints: 1, Rows: 10, SingleUse: true}
	e := start(t, used, nil)
	x, err := e.Execute(t.Context(), "q")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := all(t.Context(), e, x); err != nil || len(got) != 10 {
		t.Fatalf("got %v, %v", got, err)
	}
	_, err = all(t.Context(), e, x)
	wantCode(t, err, commit.CodeFlightLost, "NotFound", "endpoint 0")

	for name, c := range map[string]struct {
		get  func(flightsqltest.Reading) (int, error)
		code commit.Code
		rows int
	}{
		"unavailable for good":  {func(flightsqltest.Reading) (int, error) { return 0, status.Error(codes.Unavailable, "down") }, commit.CodeFlightLost, 0},
		"unavailable for once":  {func(r flightsqltest.Reading) (int, error) { return 0, firstTime(r, codes.Unavailable) }, "", 10},
		"busy for once":         {func(r flightsqltest.Reading) (int, error) { return 0, firstTime(r, codes.ResourceExhausted) }, "", 10},
		"unknown for once":      {func(r flightsqltest.Reading) (int, error) { return 0, firstTime(r, codes.NotFound) }, "", 10},
		"not permitted":         {func(flightsqltest.Reading) (int, error) { return 0, status.Error(codes.PermissionDenied, "no") }, commit.CodeFlightAuth, 0},
		"not implemented":       {func(flightsqltest.Reading) (int, error) { return 0, status.Error(codes.Unimplemented, "no") }, commit.CodeFlightQuery, 0},
		"broken off":            {func(flightsqltest.Reading) (int, error) { return 2, status.Error(codes.Internal, "worker died") }, commit.CodeFlightRead, 4},
		"broken off, not there": {func(flightsqltest.Reading) (int, error) { return 2, status.Error(codes.NotFound, "worker died") }, commit.CodeFlightRead, 4},
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t, &flightsqltest.Server{Endpoints: 1, Rows: 10, BatchRows: 2, Get: c.get}, nil)
			x, err := e.Execute(t.Context(), "q")
			if err != nil {
				t.Fatal(err)
			}
			got, err := all(t.Context(), e, x)
			if commit.CodeOf(err) != c.code || (err == nil) != (c.code == "") || len(got) != c.rows {
				t.Errorf("got %d rows, %v; want %d and %q", len(got), err, c.rows, c.code)
			}
		})
	}
}

func firstTime(r flightsqltest.Reading, code codes.Code) error {
	if r.Read == 1 {
		return status.Error(code, "not now")
	}
	return nil
}

// TestTooLarge: a message above the limit is named, at once and not tried again.
func TestTooLarge(t *testing.T) {
	s := &flightsqltest.Server{Endpoints: 1, Rows: 4, BatchRows: 2, Width: 1 << 20}
	e := start(t, s, nil)
	e.SetMaxMessage(1 << 20)
	x, err := e.Execute(t.Context(), "q")
	if err != nil {
		t.Fatal(err)
	}
	_, err = all(t.Context(), e, x)
	wantCode(t, err, commit.CodeFlightTooLarge)
}

// TestSlow: a stream that gives nothing for long enough is broken off; one that gives
// something now and then isn't.
func TestSlow(t *testing.T) {
	hang := func(ctx context.Context, _ flightsqltest.Reading, batch int) {
		if batch == 2 {
			<-ctx.Done()
		}
	}
	e := start(t, &flightsqltest.Server{Endpoints: 1, Rows: 10, BatchRows: 2, Pace: hang}, func(a *flightsql.Access) { a.ReadTimeout = time.Second })
	x, err := e.Execute(t.Context(), "q")
	if err != nil {
		t.Fatal(err)
	}
	got, err := all(t.Context(), e, x)
	wantCode(t, err, commit.CodeFlightRead, "gave nothing")
	if len(got) != 4 {
		t.Errorf("got %d rows", len(got))
	}
	ctx, cancel := context.WithCancel(t.Context())
	patient := start(t, &flightsqltest.Server{Endpoints: 1, Rows: 10, BatchRows: 2, Pace: func(ctx context.Context, _ flightsqltest.Reading, batch int) {
		if batch == 2 {
			cancel()
			<-ctx.Done()
		}
	}}, nil)
	if x, err = patient.Execute(ctx, "q"); err != nil {
		t.Fatal(err)
	}
	if _, err = all(ctx, patient, x); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestCancel: by the action that there is, also in the middle of the polls.
func TestCancel(t *testing.T) {
	for noCancel, want := range map[bool]string{false: "CancelFlightInfo 1 with 2 endpoints", true: "CancelQuery 1 with 2 endpoints"} {
		s := &flightsqltest.Server{Endpoints: 2, Rows: 1, NoCancel: noCancel}
		e := start(t, s, nil)
		x, err := e.Execute(t.Context(), "q")
		if err != nil {
			t.Fatal(err)
		}
		e.Cancel(canceled(t), x.Info, x.Endpoints)
		if got := s.Cancelled(); !slices.Equal(got, []string{want}) {
			t.Errorf("got %q", got)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	polls := 0
	s := &flightsqltest.Server{Endpoints: 2, Rows: 1, Polls: 1 << 30, Info: func(*flight.FlightInfo) {
		if polls++; polls == 2 { // what the first said has come by then
			cancel(errEnough)
		}
	}}
	e := start(t, s, nil)
	if _, err := e.Execute(ctx, "q"); !errors.Is(err, errEnough) {
		t.Errorf("got %v", err)
	}
	if got := s.Cancelled(); !slices.Equal(got, []string{"CancelFlightInfo 1 with 0 endpoints"}) {
		t.Errorf("got %q", got)
	}
}

var errEnough = errors.New("enough")

// passed is a context that gives an earlier deadline than the one that ends it: to
// servers, it has passed already.
type passed struct {
	context.Context
}

func (passed) Deadline() (time.Time, bool) { return time.Now(), true }

// TestDeadline: an engine that says that the deadline has passed, before the caller's
// timer does, isn't taken for one that can't be reached.
func TestDeadline(t *testing.T) {
	s := &flightsqltest.Server{Endpoints: 1, Rows: 4, BatchRows: 2, Get: func(r flightsqltest.Reading) (int, error) {
		return 2 - r.Read, status.Error(codes.DeadlineExceeded, "the deadline has passed")
	}}
	var access flightsql.Access
	e := start(t, s, func(a *flightsql.Access) { access = *a })
	unpolled := start(t, &flightsqltest.Server{Polls: -1}, nil)
	x, err := e.Execute(t.Context(), "q")
	if err != nil {
		t.Fatal(err)
	}
	stream, err := e.Read(t.Context(), x.Endpoints[0], x.Columns, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	b, err := stream.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.Release()
	for op, call := range map[string]func(context.Context) error{
		"poll": func(ctx context.Context) error { _, err := e.Execute(ctx, "q"); return err },
		"ask":  func(ctx context.Context) error { _, err := unpolled.Execute(ctx, "q"); return err },
		"open": func(ctx context.Context) error {
			_, err := e.Read(ctx, x.Endpoints[0], x.Columns, nil, false)
			return err
		},
		"read":   func(ctx context.Context) error { _, err := stream.Next(ctx); return err },
		"renew":  func(ctx context.Context) error { _, _, err := e.Renew(ctx, x.Endpoints[0]); return err },
		"log in": func(ctx context.Context) error { _, err := flightsql.Login(ctx, access, "u", "p"); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if err := call(passed{ctx}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", op, err)
		}
		cancel()
	}
}

// TestRenew: a renewed ticket is read; who doesn't renew says so.
func TestRenew(t *testing.T) {
	for _, renews := range []bool{true, false} {
		s := &flightsqltest.Server{Endpoints: 1, Rows: 1, Expire: time.Hour, Renews: renews}
		e := start(t, s, nil)
		x, err := e.Execute(t.Context(), "q")
		if err != nil {
			t.Fatal(err)
		}
		f, ok, err := e.Renew(t.Context(), x.Endpoints[0])
		if err != nil || ok != renews || f.Endpoint.ExpiresMS == 0 || renews && f.Endpoint.ExpiresMS < x.Endpoints[0].Endpoint.ExpiresMS {
			t.Errorf("got %+v, %v, %v", f.Endpoint, ok, err)
		}
	}
}

// TestOtherColumns: a stream whose columns aren't those announced is refused.
func TestOtherColumns(t *testing.T) {
	for name, schema := range map[string]*arrow.Schema{
		"fewer":        arrow.NewSchema(flightsqltest.Schema.Fields()[:3], nil),
		"another type": arrow.NewSchema(append(flightsqltest.Schema.Fields()[:3:3], arrow.Field{Name: "s", Type: arrow.PrimitiveTypes.Int64}), nil),
		"another name": arrow.NewSchema(append(flightsqltest.Schema.Fields()[:3:3], arrow.Field{Name: "t", Type: arrow.BinaryTypes.String}), nil),
	} {
		s := &flightsqltest.Server{Endpoints: 1, Rows: 1, Batch: func(flightsqltest.Reading, int, int) arrow.RecordBatch {
			b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
			defer b.Release()
			for _, f := range b.Fields() {
				f.AppendEmptyValue()
			}
			return b.NewRecordBatch()
		}}
		e := start(t, s, nil)
		x, err := e.Execute(t.Context(), "q")
		if err != nil {
			t.Fatal(err)
		}
		_, err = all(t.Context(), e, x)
		if commit.CodeOf(err) != commit.CodeFlightSchema {
			t.Errorf("%s: %v", name, err)
		}
	}
}
