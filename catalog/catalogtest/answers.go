package catalogtest

import (
	"testing"

	"github.com/firn-project/firn/commit"
)

// Cut says where a reply is broken off.
type Cut string

// Cuts.
const (
	Whole  Cut = ""
	Before Cut = "before"
	Middle Cut = "middle"
)

// Fault is what goes wrong with one commit request to a REST catalog.
type Fault struct {
	// Status is answered instead of the truth; 0 for the truth.
	Status int
	// Applied: the commit is done all the same.
	Applied bool
	// Cut closes the connection before any reply or in the middle of it.
	Cut Cut
}

// Server is a REST catalog, or what stands before it.
type Server interface {
	// Inject makes every further commit request meet the fault.
	Inject(f Fault)
	// Sent is the number of commit requests that have arrived.
	Sent() int
}

// Answers checks that every answer is told for what it is, that exactly one request
// is sent for it, and that what the table then shows is the truth. open makes a
// fresh table.
func Answers(t *testing.T, open func(t *testing.T) (*Harness, Server)) {
	for name, c := range map[string]struct {
		fault Fault
		want  commit.AnswerClass
	}{
		"applied":             {Fault{Applied: true}, commit.AnswerOK},
		"lying 200":           {Fault{Status: 200}, commit.AnswerOK},
		"204":                 {Fault{Status: 204, Applied: true}, commit.AnswerOK},
		"400":                 {Fault{Status: 400}, commit.AnswerRejected},
		"401":                 {Fault{Status: 401}, commit.AnswerAuth},
		"403":                 {Fault{Status: 403}, commit.AnswerPermission},
		"404":                 {Fault{Status: 404}, commit.AnswerRejected},
		"408 after":           {Fault{Status: 408, Applied: true}, commit.AnswerAmbiguous},
		"409":                 {Fault{Status: 409}, commit.AnswerConflict},
		"409 after":           {Fault{Status: 409, Applied: true}, commit.AnswerConflict},
		"419":                 {Fault{Status: 419}, commit.AnswerAuth},
		"422":                 {Fault{Status: 422}, commit.AnswerRejected},
		"429":                 {Fault{Status: 429}, commit.AnswerWait},
		"500 after":           {Fault{Status: 500, Applied: true}, commit.AnswerAmbiguous},
		"502":                 {Fault{Status: 502}, commit.AnswerAmbiguous},
		"503":                 {Fault{Status: 503}, commit.AnswerWait},
		"503 after":           {Fault{Status: 503, Applied: true}, commit.AnswerWait},
		"504 after":           {Fault{Status: 504, Applied: true}, commit.AnswerAmbiguous},
		"redirect":            {Fault{Status: 307}, commit.AnswerRejected},
		"closed before":       {Fault{Cut: Before}, commit.AnswerAmbiguous},
		"closed after":        {Fault{Cut: Before, Applied: true}, commit.AnswerAmbiguous},
		"reply broken off":    {Fault{Cut: Middle, Applied: true}, commit.AnswerAmbiguous},
		"requirement refused": {Fault{Applied: true}, commit.AnswerConflict},
	} {
		t.Run(name, func(t *testing.T) {
			h, s := open(t)
			conflict := name == "requirement refused"
			answer(t, h, s, c.fault, c.want, conflict)
		})
	}
}

// answer sends one commit that meets the fault, and another writer's before it if
// it's to conflict.
func answer(t *testing.T, h *Harness, s Server, f Fault, want commit.AnswerClass, conflict bool) {
	t.Helper()
	tbl := h.Open(t)
	defer func() { _ = tbl.Close() }()
	u := h.Unit(t, "k", 1, 3)
	m, err := tbl.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := tbl.Build(t.Context(), m, []commit.Unit{u})
	if err != nil {
		t.Fatal(err)
	}
	if conflict {
		h.Foreign(t)
	}
	before := s.Sent()
	s.Inject(f)
	a := tbl.Send(t.Context(), r)
	if a.Class != want {
		t.Errorf("answer %+v, want %s", a, want)
	}
	if (a.Err == nil) != (want == commit.AnswerOK) {
		t.Errorf("answer %s with the error %v", a.Class, a.Err)
	}
	if f.Status != 0 && a.Status != f.Status {
		t.Errorf("status %d, want %d", a.Status, f.Status)
	}
	if n := s.Sent() - before; n != 1 {
		t.Errorf("%d requests were sent", n)
	}
	if m, err = tbl.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	landed := f.Applied && !conflict
	if l, ok := m.Find(commit.MainBranch, u.Token); ok != landed || ok && l.Rows != 3 {
		t.Errorf("landed %t, found %t (%+v)", landed, ok, l)
	}
	if m.HasSnapshot(r.SnapshotID) != landed {
		t.Errorf("landed %t, snapshot shown %t", landed, !landed)
	}
}
