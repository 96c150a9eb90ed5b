//go:build interop

package engines_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/firn-project/firn/integration/canary"
)

// mark begins every canary; the marks are what the search must find in workers, by
// the place where they are.
const (
	mark            = "kNr7Canary-"
	markEnvironment = "kNr7Marker-of-the-environment"
	markArguments   = "kNr7Marker-of-the-arguments"
	markMemory      = "kNr7Marker.of.a.task" // as flights.py has it
)

// tokens is a catalog's proxy that remembers the bearer tokens which it gives.
type tokens struct {
	*httptest.Server
	mu    sync.Mutex
	given []string
}

func startTokens(t *testing.T, catalog string) *tokens {
	t.Helper()
	to, err := url.Parse(catalog)
	if err != nil {
		t.Fatal(err)
	}
	p := &tokens{}
	p.Server = httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Header.Del("Accept-Encoding") // the proxy reads the replies
		},
		ModifyResponse: p.remember,
	})
	t.Cleanup(p.Close)
	return p
}

func (p *tokens) remember(r *http.Response) error {
	if !strings.HasSuffix(r.Request.URL.Path, "/oauth/tokens") {
		return nil
	}
	raw, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(raw))
	var reply struct {
		AccessToken string `json:"access_token"`
	}
	if err == nil && json.Unmarshal(raw, &reply) == nil && reply.AccessToken != "" {
		p.mu.Lock()
		defer p.mu.Unlock()
		// Tokens are long and begin alike; a search finds their ends wherever they are.
		p.given = append(p.given, reply.AccessToken[max(0, len(reply.AccessToken)-64):])
	}
	return err
}

// all are the ends of the tokens that were given.
func (p *tokens) all() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.given)
}

// processesOf gives the processes that have a text in their environment, with their
// command lines.
func processesOf(t *testing.T, text string) map[int]string {
	t.Helper()
	all, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	found := map[int]string{}
	for _, e := range all {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ")); err != nil || !bytes.Contains(env, []byte(text)) {
			continue // of another user, or gone
		}
		args, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		found[pid] = strings.Trim(string(bytes.ReplaceAll(args, []byte{0}, []byte{' '})), " ")
	}
	return found
}

// family is a process with its children and theirs.
func family(t *testing.T, pid int) []int {
	t.Helper()
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		// Each thread has the children that it started.
		lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", all[i]))
		if err != nil {
			t.Fatal(err)
		}
		for _, list := range lists {
			raw, _ := os.ReadFile(list)
			for child := range strings.FieldsSeq(string(raw)) {
				if pid, err := strconv.Atoi(child); err == nil {
					all = append(all, pid)
				}
			}
		}
	}
	return all
}

// secrets are what workers mustn't have: the canary in the header, which begins with
// the mark, the catalog's credential, the tokens that it gave for it, and the client's.
func (l *lab) secrets() []string {
	return append([]string{mark, l.store.SecretKey, l.token}, l.catalog.all()...)
}

// searchProcess searches the memory, environment and arguments of a worker, and gives
// the marks that it found.
func (l *lab) searchProcess(pid int, args string) (marks []string, searched int64) {
	l.t.Helper()
	secrets := l.secrets()
	found, searched, err := canary.NewMarks(append(secrets, markEnvironment, markArguments, markMemory)...).Process(pid)
	if err != nil {
		return nil, 0 // it has ended
	}
	for _, f := range found {
		switch {
		case slices.ContainsFunc(secrets, func(s string) bool { return strings.HasPrefix(f, s) }):
			l.t.Errorf("a worker has a secret: %s in %d, %.100s", f, pid, args)
		case f != markArguments || strings.Contains(args, f): // not only in memory
			marks = append(marks, f)
		}
	}
	return marks, searched
}

// searchDoomed searches the workers that are about to be killed, each once, and lets
// the killing go on.
func (l *lab) searchDoomed(state string, doomed map[string][]string) {
	t := l.t
	t.Helper()
	for name, want := range doomed {
		raw, err := os.ReadFile(filepath.Join(state, "doomed-"+name))
		if err != nil || told(state, "searched-"+name) {
			continue
		}
		pid, err := strconv.Atoi(string(raw))
		if err != nil {
			t.Fatal(err)
		}
		var marks []string
		var searched int64
		workers := family(t, pid)
		for _, worker := range workers {
			args, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(worker), "cmdline"))
			more, n := l.searchProcess(worker, string(args))
			marks, searched = append(marks, more...), searched+n
		}
		t.Logf("%s: %d MiB of %d processes searched before; marks: %v", name, searched>>20, len(workers), marks)
		for _, m := range want {
			if !slices.Contains(marks, m) {
				t.Errorf("control: %s isn't found before it's %s", m, name)
			}
		}
		if err := os.WriteFile(filepath.Join(state, "searched-"+name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// searchWorkers searches a driver's workers. There must be as many of each kind as
// kinds has, by words of their command lines and by the marks that are in them.
func (l *lab) searchWorkers(state string, driver int, kinds map[string]int) {
	t := l.t
	t.Helper()
	seen := map[string]int{}
	var searched int64
	workers := processesOf(t, state)
	maps.Copy(workers, processesOf(t, l.cluster))
	for pid, args := range workers {
		if pid == driver {
			continue
		}
		marks, n := l.searchProcess(pid, args)
		searched += n
		for kind := range kinds {
			isMark := slices.Contains([]string{markEnvironment, markArguments, markMemory}, kind)
			if isMark && slices.Contains(marks, kind) || !isMark && n > 0 && strings.Contains(args, kind) {
				seen[kind]++
			}
		}
	}
	t.Logf("workers: %d MiB searched; processes and marks: %v", searched>>20, seen)
	for kind, least := range kinds {
		if seen[kind] < least {
			t.Errorf("control: %d of %s were searched, want %d", seen[kind], kind, least)
		}
	}
	l.holds(l.sched.PID(), "the scheduler", append([]string{mark, l.store.SecretKey}, l.catalog.all()...))
	l.holds(driver, "the driver", []string{l.token})
	if len(l.catalog.all()) == 0 {
		t.Error("control: the catalog gave no token")
	}
}

// holds is the search's control: who has secrets has them in memory.
func (l *lab) holds(pid int, who string, secrets []string) {
	l.t.Helper()
	found, _, err := canary.NewMarks(secrets...).Process(pid)
	for _, s := range secrets {
		if !slices.ContainsFunc(found, func(f string) bool { return strings.HasPrefix(f, s) }) {
			l.t.Errorf("control: %s isn't found in %s, which has it: %v", s, who, err)
		}
	}
}
