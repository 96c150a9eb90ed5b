package probe

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/firn-project/firn/catalog/iceberg"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/sql"
)

// Lengths of what a commit of Firn's may carry: the tokens and digests of a
// batch of 256 units, and a ledger of 1000 tokens.
const (
	summaryLength = 256 * 104
	ledgerLength  = 1000 * 42
)

// long makes a text that differs all over.
func long(n int) string {
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(uuid.NewString())
	}
	return b.String()[:n]
}

// commits makes two commits as they should be, the first with the longest
// summary and ledger.
func (p *prober) commits(ctx context.Context) error {
	base, err := p.read(ctx)
	if err != nil {
		return err
	}
	// What making the table wrote goes with the rest.
	p.files = append(p.files, base.pointer)
	for e := range base.meta.PreviousFiles() {
		p.files = append(p.files, e.MetadataFile)
	}
	if s := base.meta.CurrentSnapshot(); s != nil {
		p.landed, p.files = append(p.landed, s), append(p.files, s.ManifestList)
	}
	tokens, ledger := long(summaryLength), long(ledgerLength)
	tried := "append a snapshot to the table's head, twice"
	for i := range 2 {
		t := try{base: base, sequence: base.meta.LastSequenceNumber() + 1}
		if i == 0 {
			t.summary, t.props = map[string]string{iceberg.KeyTokens: tokens}, map[string]string{iceberg.KeyLedger: ledger}
		}
		o, err := p.send(ctx, t)
		if err != nil {
			return err
		}
		if !o.landed {
			p.undecided = "a commit that nothing speaks against didn't land"
			p.add("commit", tried, said(o.answer)+"; not there", sql.ProbeFailed)
			return errors.New(p.undecided)
		}
		p.landed = append(p.landed, o.snapshot)
		base = o.after
		if i == 0 {
			p.length("long summary", "a value of", "in the snapshot's summary", tokens, summaryOf(o, iceberg.KeyTokens))
			p.length("ledger", "a value of", "in a property of the table", ledger, o.after.meta.Properties()[iceberg.KeyLedger])
			continue
		}
		v := sql.ProbeOK
		if o.answer.Class != commit.AnswerOK {
			v = sql.ProbeWarning
		}
		p.add("commit", tried, said(o.answer)+"; there", v)
	}
	return nil
}

func summaryOf(o outcome, key string) string {
	s := o.after.meta.SnapshotByID(o.snapshot.SnapshotID)
	if s == nil || s.Summary == nil {
		return ""
	}
	return s.Summary.Properties[key]
}

// length compares a long value with what came back.
func (p *prober) length(name, what, where, wrote, back string) {
	tried := fmt.Sprintf("write %s %d bytes %s, and read it back", what, len(wrote), where)
	if back == wrote {
		p.add(name, tried, "came back as it was", sql.ProbeOK)
		return
	}
	p.add(name, tried, fmt.Sprintf("%d bytes came back; commits are found by their snapshot ids alone, and a key that comes again isn't", len(back)), sql.ProbeFailed)
}

// said shows an answer as it was.
func said(a commit.Answer) string {
	switch {
	case a.Status == 0 && a.Err == nil:
		return "done"
	case a.Status == 0:
		return a.Err.Error()
	case a.Err == nil:
		return fmt.Sprintf("%d %s", a.Status, http.StatusText(a.Status))
	}
	return strings.TrimPrefix(a.Err.Error(), "commit to ")
}

// judge notes a request that had to be refused.
func (p *prober) judge(name, tried string, o outcome, ifLanded sql.ProbeVerdict) {
	if o.landed {
		p.landed = append(p.landed, o.after.meta.SnapshotByID(o.snapshot.SnapshotID))
		p.add(name, tried, said(o.answer)+"; it landed", ifLanded)
		return
	}
	p.refused[o.snapshot.SnapshotID] = tried
	switch o.answer.Class {
	case commit.AnswerConflict:
		p.add(name, tried, "refused: "+said(o.answer), sql.ProbeOK)
	case commit.AnswerOK:
		p.add(name, tried, said(o.answer)+" for a commit that it didn't do; Firn reads the table after each answer", sql.ProbeWarning)
	default:
		p.add(name, tried, "refused, not as a conflict: "+said(o.answer)+"; Firn reads the table after each answer", sql.ProbeWarning)
	}
}

// staleHead sends a request that was built before the newest commit.
func (p *prober) staleHead(ctx context.Context) error {
	old, err := p.read(ctx)
	if err != nil {
		return err
	}
	o, err := p.send(ctx, try{base: old, sequence: old.meta.LastSequenceNumber() + 1})
	if err != nil {
		return err
	}
	if !o.landed {
		return errors.New("a commit that nothing speaks against didn't land: " + said(o.answer))
	}
	p.landed = append(p.landed, o.snapshot)
	// Only the head is stale: the number is free.
	t := try{base: old, sequence: o.after.meta.LastSequenceNumber() + 1}
	if p.attach.Swaps() {
		t.sequence = old.meta.LastSequenceNumber() + 1
	}
	if o, err = p.send(ctx, t); err != nil {
		return err
	}
	if o.landed {
		p.unfit = "it takes a commit that was built before another one, which is lost by that"
	}
	p.judge("stale head", "commit on top of a snapshot that isn't the head any more", o, sql.ProbeFailed)
	return nil
}

// staleSequence sends a request for the right head that claims a taken number.
func (p *prober) staleSequence(ctx context.Context) error {
	const name, tried = "stale sequence number", "commit on top of the head with a sequence number that is taken"
	if p.attach.Swaps() {
		p.add(name, tried, "the catalog swaps a pointer, which is the seat", sql.ProbeSkipped)
		return nil
	}
	base, err := p.read(ctx)
	if err != nil {
		return err
	}
	o, err := p.send(ctx, try{base: base, sequence: base.meta.LastSequenceNumber()})
	if err != nil {
		return err
	}
	if o.landed {
		p.noSeat = "it takes commits whose sequence number is taken, so that an old request may land at any time"
	}
	p.judge(name, tried, o, sql.ProbeFailed)
	return nil
}

// duplicateID sends a snapshot whose id the table has.
func (p *prober) duplicateID(ctx context.Context) error {
	const name, tried = "duplicate snapshot id", "commit a snapshot whose id is taken"
	if p.attach.Swaps() {
		p.add(name, tried, "the catalog doesn't look into metadata; the driver does", sql.ProbeSkipped)
		return nil
	}
	base, err := p.read(ctx)
	if err != nil {
		return err
	}
	first := p.landed[0].SnapshotID
	o, err := p.send(ctx, try{base: base, sequence: base.meta.LastSequenceNumber() + 1, id: first})
	if err != nil {
		return err
	}
	if o.landed {
		p.add(name, tried, said(o.answer)+"; the head is the old snapshot now. Firn's ids are random", sql.ProbeWarning)
		return nil
	}
	// The specification has no status for it.
	if o.answer.Class == commit.AnswerRejected {
		o.answer.Class = commit.AnswerConflict
	}
	p.judge(name, tried, o, sql.ProbeWarning)
	delete(p.refused, first)
	return nil
}

// history looks for all snapshots that landed, as they were sent, and for those
// that were refused and landed late.
func (p *prober) history(ctx context.Context) error {
	const tried = "load the table with all snapshots, and compare them with what was sent"
	v, err := p.read(ctx)
	if err != nil {
		return err
	}
	for id, what := range p.refused {
		if v.meta.SnapshotByID(id) != nil {
			p.undecided = "a request that had been refused landed later: " + what
		}
	}
	missing, orphans, moved, numbers := 0, 0, 0, 0
	for _, s := range p.landed {
		got := v.meta.SnapshotByID(s.SnapshotID)
		switch {
		case got == nil:
			missing++
		case s.ParentSnapshotID != nil && got.ParentSnapshotID == nil:
			orphans++
		case s.ParentSnapshotID != nil && *got.ParentSnapshotID != *s.ParentSnapshotID:
			moved++
		case got.SequenceNumber != s.SequenceNumber:
			numbers++
		}
	}
	switch {
	case moved > 0:
		p.unfit = "it gives snapshots other parents than they were committed with"
		p.add("history", tried, fmt.Sprintf("%d of %d snapshots have another parent", moved, len(p.landed)), sql.ProbeFailed)
	case missing+orphans+numbers > 0:
		p.add("history", tried, fmt.Sprintf("of %d snapshots %d are missing, %d show no parent, %d have another sequence number; the ledger tells what landed",
			len(p.landed), missing, orphans, numbers), sql.ProbeWarning)
	default:
		p.add("history", tried, fmt.Sprintf("all %d snapshots, their parents and numbers", len(p.landed)), sql.ProbeOK)
	}
	return nil
}

// putIfAbsent writes one object twice.
func (p *prober) putIfAbsent(ctx context.Context) error {
	const name, tried = "put-if-absent", "put one object twice beside the table's metadata, if it's absent"
	v, err := p.read(ctx)
	if err != nil {
		return err
	}
	// Stores of tables take only names that tables have.
	f := p.file(v.meta, uuid.NewString()+"-m0.avro")
	if err := p.Store.PutIfAbsent(ctx, f, []byte("first")); err != nil {
		p.add(name, tried, err.Error(), sql.ProbeFailed)
		return nil
	}
	switch err := p.Store.PutIfAbsent(ctx, f, []byte("second")); {
	case errors.Is(err, objstore.ErrExists):
		p.add(name, tried, "the second was refused", sql.ProbeOK)
	case err == nil:
		p.add(name, tried, "the second replaced the first; Delta tables can't be kept in such a store", sql.ProbeFailed)
	default:
		p.add(name, tried, err.Error(), sql.ProbeWarning)
	}
	return nil
}

// scope asks which keys executors would get for the table.
func (p *prober) scope(ctx context.Context) error {
	const name, tried = "executors' keys", "ask what executors that write to the table would get"
	switch needed, warning, err := p.Scoping(ctx, p.table); {
	case err != nil:
		p.add(name, tried, err.Error(), sql.ProbeWarning)
	case warning != "":
		p.add(name, tried, "allow_unscoped: "+warning, sql.ProbeWarning)
	case !needed:
		p.add(name, tried, "none are needed", sql.ProbeSkipped)
	default:
		p.add(name, tried, "keys that are scoped, and end", sql.ProbeOK)
	}
	return nil
}

// vend asks for storage credentials.
func (p *prober) vend(ctx context.Context) error {
	const name, tried = "storage credentials", "load the table and ask for credentials to its files"
	if p.Vend == nil {
		p.add(name, tried, "a catalog of this kind vends none; the storage settings are used", sql.ProbeSkipped)
		return nil
	}
	text, err := p.Vend(ctx, p.table)
	if err != nil {
		return err
	}
	p.add(name, tried, text, sql.ProbeOK)
	return nil
}
