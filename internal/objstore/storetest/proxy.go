package storetest

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// Op is a kind of request to an S3 store.
type Op string

// Kinds of requests.
const (
	Get      Op = "get"
	Head     Op = "head"
	List     Op = "list"
	Put      Op = "put"
	Delete   Op = "delete"
	Start    Op = "start" // of a multipart upload
	Part     Op = "part"
	Complete Op = "complete"
	Abort    Op = "abort"
	Other    Op = "other"
)

// Request is a request that the proxy has to do with.
type Request struct {
	Op Op
	// Path is bucket and key, escaped as sent.
	Path string
	// N counts the requests of the kind from 1.
	N int
	// Key is the id of the keys that signed it.
	Key string
}

// Fault is what happens to a request.
type Fault string

// Faults.
const (
	None Fault = ""
	// Busy and Broken: the store isn't asked; the reply is 503 SlowDown, or 500
	// without S3's words.
	Busy   Fault = "busy"
	Broken Fault = "broken"
	// Clash: the store isn't asked; the reply is S3's to one of two conditional
	// writes that met.
	Clash Fault = "clash"
	// Redirect: the store isn't asked; the reply sends the client to what it can
	// read, the bucket's listing.
	Redirect Fault = "redirect"
	// Error200: the store isn't asked, and the reply is an error with the status
	// 200, as S3 may give to the completion of an upload.
	Error200 Fault = "error 200"
	// Corrupt: the store gets another body than was sent.
	Corrupt Fault = "corrupt"
	// Silent: the store isn't asked, and no reply ever comes.
	Silent Fault = "silent"
	// Expired: the store isn't asked; the reply is that the keys have ended, which
	// that to a HEAD can't say.
	Expired Fault = "expired"
	// Forgotten: as Expired, in MinIO's words, which knows no such keys then.
	Forgotten Fault = "forgotten"
	// Reset: the store isn't asked, and the connection is reset.
	Reset Fault = "reset"
	// Lost: the request takes effect, and the connection is reset without a reply.
	Lost Fault = "lost"
	// LostLate: as Lost, but the connection is reset first and the request
	// reaches the store when Proxy.Release is called.
	LostLate Fault = "lost late"
	// Answer500, AnswerBusy and AnswerExists: the request takes effect, and the reply
	// is a bare 500, that of Busy, or the one to a conditional write whose object is
	// there: what a client gets whose write was sent twice on its way.
	Answer500    Fault = "answer 500"
	AnswerBusy   Fault = "answer busy"
	AnswerExists Fault = "answer exists"
	// Cut and ResetBody: the connection is closed, or reset, in the middle of the
	// reply's body. A reset takes with it what the client hasn't read yet.
	Cut       Fault = "cut"
	ResetBody Fault = "reset body"
	// Stall: the reply stops in the middle of its body, with the connection open.
	Stall Fault = "stall"
)

// Proxy stands in front of an S3 store, counts what is asked of it, and puts
// faults in between. It is safe for concurrent use.
type Proxy struct {
	// URL is the endpoint for clients.
	URL string

	forward *httputil.ReverseProxy
	server  *httptest.Server
	done    chan struct{}
	late    sync.WaitGroup

	mu       sync.Mutex
	schedule func(Request) Fault
	requests map[Op]int
	faults   map[Fault]int
	sent     int64
	release  chan struct{}
}

type connKey struct{}

// NewProxy starts a proxy of the store at upstream, without faults until Begin.
// It ends with the test.
func NewProxy(t testing.TB, upstream string) *Proxy {
	t.Helper()
	u, err := url.Parse(upstream)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}
	p := &Proxy{
		forward: &httputil.ReverseProxy{
			// The signature covers the Host header, so that it stays the client's.
			Rewrite:   func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = u.Scheme, u.Host },
			Transport: transport,
			ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
				panic(http.ErrAbortHandler)
			},
		},
		done:     make(chan struct{}),
		requests: map[Op]int{}, faults: map[Fault]int{}, release: make(chan struct{}),
	}
	p.server = httptest.NewUnstartedServer(p)
	p.server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, c)
	}
	p.server.Start()
	p.URL = p.server.URL
	t.Cleanup(func() {
		close(p.done)
		p.Release()
		p.server.CloseClientConnections()
		p.server.Close()
		transport.CloseIdleConnections()
	})
	return p
}

// Begin counts from now on, and chooses faults by the schedule, which is called by
// one goroutine at a time; nil ends the faults.
func (p *Proxy) Begin(schedule func(Request) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.schedule, p.requests, p.faults, p.sent = schedule, map[Op]int{}, map[Fault]int{}, 0
}

// Requests counts requests by their kind.
func (p *Proxy) Requests() map[Op]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.requests)
}

// Faults counts the faults that have happened.
func (p *Proxy) Faults() map[Fault]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.faults)
}

// Sent is how many bytes of objects were sent to clients.
func (p *Proxy) Sent() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent
}

// Release lets the requests that are late reach the store, and returns when they
// have been answered.
func (p *Proxy) Release() {
	p.mu.Lock()
	close(p.release)
	p.release = make(chan struct{})
	p.mu.Unlock()
	p.late.Wait()
}

func opOf(r *http.Request) Op {
	q := r.URL.Query()
	switch upload := q.Has("uploadId"); {
	case r.Method == http.MethodGet && !strings.Contains(strings.Trim(r.URL.Path, "/"), "/"):
		return List
	case r.Method == http.MethodGet:
		return Get
	case r.Method == http.MethodHead:
		return Head
	case r.Method == http.MethodPut && upload:
		return Part
	case r.Method == http.MethodPut:
		return Put
	case r.Method == http.MethodPost && q.Has("uploads"):
		return Start
	case r.Method == http.MethodPost && upload:
		return Complete
	case r.Method == http.MethodDelete && upload:
		return Abort
	case r.Method == http.MethodDelete:
		return Delete
	}
	return Other
}

// choose counts a request and takes its fault.
func (p *Proxy) choose(r *http.Request) (Op, Fault, chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	op := opOf(r)
	p.requests[op]++
	f := None
	if p.schedule != nil {
		_, id, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
		id, _, _ = strings.Cut(id, "/")
		f = p.schedule(Request{Op: op, Path: r.URL.EscapedPath(), N: p.requests[op], Key: id})
	}
	if f != None {
		p.faults[f]++
	}
	return op, f, p.release
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	op, fault, release := p.choose(r)
	switch fault {
	case Busy:
		refuse(w, r, http.StatusServiceUnavailable, "SlowDown")
	case Clash:
		refuse(w, r, http.StatusConflict, "ConditionalRequestConflict")
	case Redirect:
		bucket, _, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
		w.Header().Set("Location", "/"+bucket)
		refuse(w, r, http.StatusFound, "Redirect")
	case Error200:
		refuse(w, r, http.StatusOK, "InternalError")
	case Corrupt:
		p.corrupt(w, r)
	case Silent:
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-r.Context().Done():
		case <-p.done:
		}
		panic(http.ErrAbortHandler)
	case Broken:
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusInternalServerError)
	case Expired:
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>`)
	case Forgotten:
		refuse(w, r, http.StatusForbidden, "InvalidAccessKeyId")
	case Reset:
		reset(r)
	case Lost:
		p.forward.ServeHTTP(httptest.NewRecorder(), r)
		reset(r)
	case Answer500:
		p.forward.ServeHTTP(httptest.NewRecorder(), r)
		w.WriteHeader(http.StatusInternalServerError)
	case AnswerBusy:
		p.forward.ServeHTTP(httptest.NewRecorder(), r)
		refuse(w, r, http.StatusServiceUnavailable, "SlowDown")
	case AnswerExists:
		p.forward.ServeHTTP(httptest.NewRecorder(), r)
		refuse(w, r, http.StatusPreconditionFailed, "PreconditionFailed")
	case LostLate:
		p.later(r, release)
		reset(r)
	default:
		p.forward.ServeHTTP(&counter{ResponseWriter: w, proxy: p, request: r, op: op, fault: fault}, r)
	}
}

// refuse answers with an error as S3 words it.
func refuse(w http.ResponseWriter, r *http.Request, status int, code string) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "<Error><Code>"+code+"</Code><Message>Please reduce your request rate.</Message></Error>")
}

// corrupt sends the request on with a bit of its body turned.
func (p *Proxy) corrupt(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || len(body) == 0 {
		panic(http.ErrAbortHandler)
	}
	body[len(body)/2] ^= 1
	r.Body = io.NopCloser(bytes.NewReader(body))
	p.forward.ServeHTTP(w, r)
}

// later sends a copy of the request when it's released.
func (p *Proxy) later(r *http.Request, release chan struct{}) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	again := r.Clone(context.Background())
	again.Body = io.NopCloser(bytes.NewReader(body))
	p.late.Go(func() {
		<-release
		p.forward.ServeHTTP(httptest.NewRecorder(), again)
	})
}

// reset ends the client's connection with RST instead of a reply.
func reset(r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(*net.TCPConn); ok {
		_ = c.SetLinger(0)
		_ = c.Close()
	}
	panic(http.ErrAbortHandler)
}

// counter counts the bytes of a reply, and breaks it off half-way where its fault
// says so.
type counter struct {
	http.ResponseWriter
	proxy   *Proxy
	request *http.Request
	op      Op
	fault   Fault
	left    int64
	status  int
}

func (c *counter) WriteHeader(status int) {
	if c.status == 0 {
		c.status = status
		var n int64
		for _, d := range []byte(c.Header().Get("Content-Length")) {
			n = 10*n + int64(d-'0')
		}
		c.left = n / 2
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *counter) Write(b []byte) (int, error) {
	if c.status == 0 {
		c.WriteHeader(http.StatusOK)
	}
	broken := c.fault != None && int64(len(b)) > c.left
	if broken {
		b = b[:c.left]
	}
	n, err := c.ResponseWriter.Write(b)
	c.left -= int64(n)
	if c.op == Get && c.status < 300 {
		c.proxy.mu.Lock()
		c.proxy.sent += int64(n)
		c.proxy.mu.Unlock()
	}
	if !broken {
		return n, err
	}
	_ = http.NewResponseController(c.ResponseWriter).Flush()
	if c.fault == Stall {
		select {
		case <-c.request.Context().Done():
		case <-c.proxy.done:
		}
	}
	if c.fault == Cut {
		panic(http.ErrAbortHandler)
	}
	reset(c.request)
	return n, err
}

// Unwrap lets the reverse proxy flush.
func (c *counter) Unwrap() http.ResponseWriter { return c.ResponseWriter }
