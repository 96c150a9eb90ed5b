package committest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/firn-project/firn/commit"
)

// Fault is what happens to one send.
type Fault struct {
	// Apply: the copy reaches the table before the answer is made.
	Apply bool
	// Later: a copy reaches the table when Catalog.Deliver is called.
	Later bool
	// Again: a second copy, made by something on the way, reaches the table at
	// once, and the answer is that one's.
	Again bool
	// Answer overrides the table's own answer.
	Answer *commit.Answer
}

// Faults by name, as scenario files and tests order them.
var faults = map[string]Fault{
	"pass":         {Apply: true},
	"drop-request": {Answer: answer(commit.AnswerAmbiguous, 0, "connection reset")},
	"drop-reply":   {Apply: true, Answer: answer(commit.AnswerAmbiguous, 0, "timeout")},
	"late":         {Later: true, Answer: answer(commit.AnswerAmbiguous, 0, "timeout")},
	"replay":       {Apply: true, Again: true},
	"lie":          {Answer: answer(commit.AnswerOK, 200, "")},
	"400":          {Answer: answer(commit.AnswerRejected, 400, "bad request")},
	"401":          {Answer: answer(commit.AnswerAuth, 401, "token expired")},
	"403":          {Answer: answer(commit.AnswerPermission, 403, "forbidden")},
	"404":          {Answer: answer(commit.AnswerRejected, 404, "not found")},
	"409":          {Answer: answer(commit.AnswerConflict, 409, "commit failed")},
	"413":          {Answer: answer(commit.AnswerRejected, 413, "too large")},
	"422":          {Answer: answer(commit.AnswerRejected, 422, "unprocessable")},
	"429":          {Answer: answer(commit.AnswerWait, 429, "slow down")},
	"500":          {Answer: answer(commit.AnswerAmbiguous, 500, "internal error")},
	"502":          {Answer: answer(commit.AnswerAmbiguous, 502, "bad gateway")},
	"503":          {Answer: answer(commit.AnswerWait, 503, "unavailable")},
	"500-applied":  {Apply: true, Answer: answer(commit.AnswerAmbiguous, 500, "internal error")},
	"409-applied":  {Apply: true, Answer: answer(commit.AnswerConflict, 409, "commit failed")},
	"403-late":     {Later: true, Answer: answer(commit.AnswerPermission, 403, "forbidden")},
}

func answer(class commit.AnswerClass, status int, text string) *commit.Answer {
	a := &commit.Answer{Class: class, Status: status}
	if text != "" {
		a.Err = errors.New(text)
	}
	return a
}

// FaultNames are the names that Inject knows, sorted.
func FaultNames() []string {
	var names []string
	for n := range faults {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Driver is a commit.Table over a Catalog. Its faults are its own: two drivers
// of one catalog are two processes.
type Driver struct {
	c     *Catalog
	sends []Fault
	reads []func(version, []version) (version, error)
	// BeforeSend and BeforeBuild are called before each send and build when
	// they're set: the place for what others do meanwhile.
	BeforeSend, BeforeBuild func()
	mark                    string
	begin                   func(ctx context.Context, tableUUID, dir string) error
	// Poison are files whose presence makes the catalog answer 400.
	Poison map[string]bool
}

// NewDriver opens the catalog's table.
func NewDriver(c *Catalog) *Driver { return &Driver{c: c} }

// Inject orders faults for the next sends, by name. Sends beyond them pass.
func (d *Driver) Inject(names ...string) error {
	for _, n := range names {
		f, ok := faults[n]
		if !ok {
			return fmt.Errorf("no fault %q; there are %v", n, FaultNames())
		}
		d.sends = append(d.sends, f)
	}
	return nil
}

// FailReads makes the next n reads fail with err.
func (d *Driver) FailReads(n int, err error) {
	for range n {
		d.reads = append(d.reads, func(version, []version) (version, error) { return version{}, err })
	}
}

// PassReads lets n reads through before the faults ordered after it.
func (d *Driver) PassReads(n int) {
	for range n {
		d.reads = append(d.reads, func(v version, _ []version) (version, error) { return v, nil })
	}
}

// StaleReads makes the next n reads show the table as it was the given number
// of changes ago.
func (d *Driver) StaleReads(n, ago int) {
	for range n {
		d.reads = append(d.reads, func(v version, h []version) (version, error) {
			if i := len(h) - ago; i > 0 { // the first entry is before the table was made
				return h[i], nil
			}
			return v, nil
		})
	}
}

// Read implements commit.Table.
func (d *Driver) Read(ctx context.Context) (commit.Metadata, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	v := d.c.now
	if len(d.reads) > 0 {
		f := d.reads[0]
		d.reads = d.reads[1:]
		var err error
		if v, err = f(v, d.c.history); err != nil {
			return nil, err
		}
	}
	if !v.exists {
		return nil, fmt.Errorf("%s: %w", Name, commit.ErrTableNotFound)
	}
	return v.read(d.c.mode), nil
}

// Build implements commit.Table.
func (d *Driver) Build(ctx context.Context, m commit.Metadata, units []commit.Unit) (commit.Request, error) {
	if d.BeforeBuild != nil {
		d.BeforeBuild()
	}
	if err := ctx.Err(); err != nil {
		return commit.Request{}, err
	}
	base, ok := m.(metadata)
	if !ok {
		return commit.Request{}, errors.New("the metadata is not of this driver")
	}
	for _, u := range units {
		if u.Claim == nil {
			continue
		}
		if err := commit.CheckConflicts(u, base.changes(u.Branch, u.Claim.Base.Number)); err != nil {
			return commit.Request{}, err
		}
	}
	if d.mark != "" {
		if err := d.begin(ctx, base.uuid, metadataDir); err != nil {
			return commit.Request{}, err
		}
	}
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	d.c.next++
	r := base.build(strconv.Itoa(d.c.next), units)
	if d.mark != "" {
		r.ID += "-" + d.mark
		r.MetadataFiles = []string{metadataDir + "/" + r.SnapshotID + "-" + r.ID + ".avro"}
	}
	d.c.files[r.MetadataFiles[0]] = true
	return r, nil
}

const metadataDir = "metadata"

var _ commit.Marked = (*Driver)(nil)

// Mark implements commit.Marked.
func (d *Driver) Mark(mark string, begin func(ctx context.Context, tableUUID, dir string) error) {
	d.mark, d.begin = mark, begin
}

// MarkedFiles implements commit.Marked.
func (d *Driver) MarkedFiles(_ context.Context, dir, mark string, each func(commit.MarkedFile) error) error {
	for _, p := range d.c.MetadataFiles() {
		name, ok := strings.CutPrefix(p, dir+"/")
		if !ok || !strings.HasSuffix(name, "-"+mark+".avro") {
			continue
		}
		_, id, _ := strings.Cut(strings.TrimSuffix(name, ".avro"), "-")
		if err := each(commit.MarkedFile{Path: p, RequestID: id, Made: time.Now()}); err != nil {
			return err
		}
	}
	return nil
}

// Unreferenced implements commit.Marked.
func (d *Driver) Unreferenced(_ context.Context, m commit.Metadata, paths map[string]bool) error {
	for p := range paths {
		snapshot, _, _ := strings.Cut(strings.TrimPrefix(p, metadataDir+"/"), "-")
		if m.HasSnapshot(snapshot) {
			delete(paths, p)
		}
	}
	return nil
}

// Send implements commit.Table.
func (d *Driver) Send(_ context.Context, r commit.Request) commit.Answer {
	if d.BeforeSend != nil {
		d.BeforeSend()
	}
	f := faults["pass"]
	if len(d.sends) > 0 {
		f = d.sends[0]
		d.sends = d.sends[1:]
	}
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	d.c.sends++
	p := r.Payload.(*payload)
	for _, u := range p.units {
		for _, file := range u.Files.All() {
			if d.Poison[file.Path] {
				return *answer(commit.AnswerRejected, 400, "poisoned")
			}
		}
	}
	var a commit.Answer
	if f.Apply {
		a = d.c.apply(p)
	}
	if f.Again {
		a = d.c.apply(p)
	}
	if f.Later {
		d.c.late = append(d.c.late, p)
	}
	if f.Answer != nil {
		a = *f.Answer
	}
	return a
}

// Discard implements commit.Table.
func (d *Driver) Discard(_ context.Context, r commit.Request) error {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	for _, f := range r.MetadataFiles {
		delete(d.c.files, f)
	}
	return nil
}

// Close implements commit.Table.
func (d *Driver) Close() error { return nil }
