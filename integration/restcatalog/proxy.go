package restcatalog

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Class sorts requests.
type Class string

// Classes of requests.
const (
	Load   Class = "load"   // of one table
	Commit Class = "commit" // to one table
	Other  Class = "other"
)

// Arrival says when a request that met a fault reaches the catalog.
type Arrival int

// Arrivals.
const (
	Now   Arrival = iota // and is answered by the catalog unless Status or Cut say otherwise
	Never                // it's lost on its way
	Late                 // after its sender was answered: Fault.After later, or at Flush
	Twice                // a proxy repeats it; the second answer goes back
)

// Cut says how a reply is broken off.
type Cut int

// Cuts.
const (
	Whole  Cut = iota
	Reply      // the connection is closed without a reply
	Middle     // 200 and a part of the reply
)

// Fault is what goes wrong with one request.
type Fault struct {
	// Name is counted when the fault has happened.
	Name    string
	Arrives Arrival
	// Status is answered in place of the catalog's; 0 for the catalog's own. A
	// request that never arrives needs a Status or a Cut. A redirect leads back
	// here.
	Status int
	// RetryAfter is the header of that name, unless empty.
	RetryAfter string
	Cut        Cut
	// Delay holds the request back before it arrives.
	Delay time.Duration
	// After is how much later a Late request arrives.
	After time.Duration
	// Stale answers a load with the reply before the newest that was given.
	Stale bool
	// Before runs when the request is here, Landed when the catalog has answered
	// and before anybody is told.
	Before, Landed func()
}

// Schedule chooses the fault of the nth request (from 1) of a class; nil for
// none. It's called from several goroutines, one at a time.
type Schedule func(c Class, n int) *Fault

// Proxy stands in front of a catalog.
type Proxy struct {
	// URL is where the proxy answers.
	URL string

	target *url.URL
	http   *httptest.Server
	out    *http.Transport
	late   sync.WaitGroup

	mu       sync.Mutex
	schedule Schedule
	requests map[Class]int
	fired    map[string]int
	flush    chan struct{}
	// replies are the last two replies to loads of each table.
	replies map[string][2][]byte
}

// NewProxy makes a proxy of the catalog at target, without faults until Begin.
// Close ends it.
func NewProxy(target string) (*Proxy, error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		target: u, out: &http.Transport{},
		requests: map[Class]int{}, fired: map[string]int{}, flush: make(chan struct{}), replies: map[string][2][]byte{},
	}
	p.http = httptest.NewServer(p)
	p.URL = p.http.URL
	return p, nil
}

// Close lets what is late arrive and ends the proxy.
func (p *Proxy) Close() {
	p.Flush()
	p.http.CloseClientConnections()
	p.http.Close()
	p.out.CloseIdleConnections()
}

// Begin counts requests from now on, and chooses their faults by the schedule; nil
// ends the faults.
func (p *Proxy) Begin(s Schedule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.schedule, p.requests = s, map[Class]int{}
}

// Flush lets the requests that are late arrive, and returns when they have.
func (p *Proxy) Flush() {
	p.mu.Lock()
	close(p.flush)
	p.flush = make(chan struct{})
	p.mu.Unlock()
	p.late.Wait()
}

// Fired counts the faults that have happened, by name.
func (p *Proxy) Fired() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.fired)
}

// Requests counts the requests that have come, by class.
func (p *Proxy) Requests() map[Class]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.requests)
}

func classOf(r *http.Request) Class {
	// /v1/namespaces/NAMESPACE/tables/TABLE, or with a prefix after /v1.
	at := strings.Split(strings.Trim(r.URL.EscapedPath(), "/"), "/")
	n := len(at)
	switch {
	case n < 5 || at[n-4] != "namespaces" || at[n-2] != "tables":
		return Other
	case r.Method == http.MethodGet:
		return Load
	case r.Method == http.MethodPost:
		return Commit
	}
	return Other
}

func (p *Proxy) arrived(r *http.Request) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := classOf(r)
	p.requests[c]++
	if p.schedule == nil {
		return &Fault{}
	}
	if f := p.schedule(c, p.requests[c]); f != nil {
		return f
	}
	return &Fault{}
}

func (p *Proxy) count(f *Fault) {
	if f.Name == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fired[f.Name]++
}

// reply is a whole answer of the catalog.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// forward sends a request on. It doesn't end with the sender's connection: what
// is on its way arrives.
func (p *Proxy) forward(r *http.Request, body []byte) (reply, error) {
	u := *r.URL
	u.Scheme, u.Host = p.target.Scheme, p.target.Host
	out, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, u.String(), io.NopCloser(bytes.NewReader(body)))
	if err != nil {
		return reply{}, err
	}
	out.Header, out.ContentLength = r.Header.Clone(), int64(len(body))
	resp, err := p.out.RoundTrip(out)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, got}, err
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the sender is gone
	}
	f := p.arrived(r)
	if f.Before != nil {
		f.Before()
	}
	wait(f.Delay, nil)
	got := p.deliver(f, r, body)
	if f.Landed != nil {
		f.Landed()
	}
	if classOf(r) == Load && got.status == http.StatusOK {
		var old bool
		if got.body, old = p.remember(r.URL.Path, got.body, f.Stale); f.Stale && !old {
			f = &Fault{} // there's no past yet
		}
	}
	p.count(f)
	switch {
	case f.Cut == Reply:
		panic(http.ErrAbortHandler)
	case f.Cut == Middle:
		w.Header().Set("Content-Length", "1000000")
		_, _ = w.Write(got.body[:len(got.body)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case f.Status != 0:
		if f.RetryAfter != "" {
			w.Header().Set("Retry-After", f.RetryAfter)
		}
		if f.Status >= 300 && f.Status < 400 {
			w.Header().Set("Location", r.URL.RequestURI())
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(f.Status)
		_, _ = fmt.Fprintf(w, `{"error":{"message":"made up by the proxy","type":"Fault","code":%d}}`, f.Status)
	default:
		maps.Copy(w.Header(), got.header)
		w.Header().Del("Content-Length")
		w.WriteHeader(got.status)
		_, _ = w.Write(got.body)
	}
}

// deliver brings the request to the catalog as the fault says and gives the
// catalog's reply, if there is one yet.
func (p *Proxy) deliver(f *Fault, r *http.Request, body []byte) reply {
	switch f.Arrives {
	case Never:
		return reply{}
	case Late:
		p.mu.Lock()
		flushed := p.flush
		p.mu.Unlock()
		copied := r.Clone(context.WithoutCancel(r.Context()))
		p.late.Go(func() {
			wait(f.After, flushed)
			_, _ = p.forward(copied, body)
		})
		return reply{}
	case Twice:
		_, _ = p.forward(r, body)
	case Now:
	}
	got, err := p.forward(r, body)
	if err != nil {
		panic(http.ErrAbortHandler) // as the catalog's own end of the connection would
	}
	return got
}

// remember keeps a reply to a load and gives the one to answer with; old says
// that it's from the past.
func (p *Proxy) remember(path string, body []byte, stale bool) (answer []byte, old bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.replies[path]
	if !bytes.Equal(last[1], body) {
		last = [2][]byte{last[1], body}
		p.replies[path] = last
	}
	if stale && last[0] != nil {
		return last[0], true
	}
	return body, false
}

// wait waits for a while, or until early is closed.
func wait(d time.Duration, early <-chan struct{}) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-early:
	}
}
