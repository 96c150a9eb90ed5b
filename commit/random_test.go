package commit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
)

// process is one committer at work on some units, with its journal.
type process struct {
	*committest.Runner
	d     *committest.Driver
	units []commit.Unit
	sent  []commit.Request
	done  bool
	seed  uint64
}

func (p *process) start(c *committest.Catalog) {
	p.d = committest.NewDriver(c)
	p.done = false
	p.seed++
	p.Runner = committest.NewRunner(p.d, commit.NewMachine(p.units, commit.Options{
		MaxAttempts: 5, Deadline: committest.Epoch.Add(minute), Seed: p.seed, Sent: slices.Clone(p.sent),
	}))
	p.RecordErr = func(r commit.Record) error {
		p.sent = append(p.sent, r.Request)
		return nil
	}
}

// history draws one history over a table and runs it. Processes share units
// when zombies is set, as when one was thought dead; then they don't share a
// journal.
func history(rt *rapid.T, zombies bool) (*committest.Catalog, []*process) {
	mode := committest.Mode{
		Pointer:      rapid.Bool().Draw(rt, "pointer"),
		StaleSeat400: rapid.Bool().Draw(rt, "400"),
		// Without tokens only the send records tell, and zombies don't share them.
		StripTokens: !zombies && rapid.Bool().Draw(rt, "strip"),
		NoLedger:    rapid.Bool().Draw(rt, "no ledger"),
		HeadsOnly:   rapid.IntRange(0, 3).Draw(rt, "heads only") == 0,
	}
	c := committest.NewCatalog(mode)
	var units []commit.Unit
	for n := range rapid.IntRange(1, 3).Draw(rt, "units") {
		u := committest.NewUnit(c, fmt.Sprintf("k%d", n), fmt.Sprintf("j%d", n), 1, 1)
		// Who shares no journal with another must have accepted the key before
		// the other may have committed it; see commit.Unit.
		if zombies || rapid.Bool().Draw(rt, "origin") {
			m, err := committest.NewDriver(c).Read(context.Background())
			if err != nil {
				rt.Fatal(err)
			}
			u.Origin = commit.OriginOf(m)
		}
		units = append(units, u)
	}
	var ps []*process
	for n := range rapid.IntRange(1, 2).Draw(rt, "processes") {
		p := &process{seed: uint64(100 * n)}
		if p.units = units; !zombies {
			cut := len(units) / 2
			p.units = [][]commit.Unit{units[cut:], units[:cut]}[n]
		}
		p.start(c)
		ps = append(ps, p)
	}
	for range rapid.IntRange(0, 40).Draw(rt, "steps") {
		p := ps[rapid.IntRange(0, len(ps)-1).Draw(rt, "process")]
		randomEvent(rt, c, p, !mode.Pointer)
	}
	for range 5000 { // everything goes well from here on
		busy := false
		for _, p := range ps {
			p.done = p.done || !p.Step()
			busy = busy || !p.done
		}
		if !busy {
			break
		}
	}
	c.Deliver()
	return c, ps
}

func randomEvent(rt *rapid.T, c *committest.Catalog, p *process, stale bool) {
	switch rapid.IntRange(0, 18).Draw(rt, "event") {
	default:
		p.done = p.done || !p.Step()
	case 8:
		fault := rapid.SampledFrom(committest.FaultNames()).Draw(rt, "fault")
		if err := p.d.Inject(fault); err != nil {
			rt.Fatal(err)
		}
	case 9:
		c.Foreign(rapid.SampledFrom([]string{"main", "other"}).Draw(rt, "branch"))
	case 10:
		c.SetHead("main", rapid.SampledFrom(append(c.Snapshots(), "")).Draw(rt, "head"))
	case 11:
		c.AddColumn()
	case 12:
		c.Deliver()
	case 13:
		if !stale { // see commit.Seat
			return
		}
		p.d.StaleReads(1, rapid.IntRange(1, 4).Draw(rt, "ago"))
	case 14:
		p.d.FailReads(rapid.IntRange(1, 3).Draw(rt, "reads"), errors.New("down"))
	case 15:
		if rapid.IntRange(0, 3).Draw(rt, "drop column") == 0 {
			c.DropColumn()
		}
	case 17:
		c.Expire()
	case 18:
		c.SetLedger("")
	case 16: // it dies and is started again
		p.start(c)
	}
}

// wantWhole checks what holds in any history.
func wantWhole(rt *rapid.T, c *committest.Catalog, ps []*process) {
	files := c.MetadataFiles()
	if n := c.Misfits(); n != 0 {
		rt.Fatalf("%d units were applied to a table that they don't fit", n)
	}
	for _, p := range ps {
		trace := strings.Join(p.Trace, "\n")
		for _, u := range p.units {
			if n := c.Landed(u.Token); n > 1 {
				rt.Fatalf("unit %s is in the table %d times\n%s", u.Key, n, trace)
			}
			o, ok := p.Outcomes[u.Token]
			if !ok {
				rt.Fatalf("unit %s has no outcome\n%s", u.Key, trace)
			}
			if o.State == commit.Committed && c.Landed(u.Token) != 1 {
				rt.Fatalf("unit %s is told as committed and isn't in the table\n%s", u.Key, trace)
			}
		}
		for _, r := range p.sent {
			if slices.Contains(c.Snapshots(), r.SnapshotID) && !slices.Contains(files, r.MetadataFiles[0]) {
				rt.Fatalf("the metadata of snapshot %s, which is in the table, was deleted\n%s", r.SnapshotID, trace)
			}
		}
	}
}

func TestNeverTwiceAndRefusedNeverLands(t *testing.T) {
	seen := map[commit.State]int{}
	for range 10 { // ten times the usual number of histories
		rapid.Check(t, func(rt *rapid.T) {
			c, ps := history(rt, false)
			wantWhole(rt, c, ps)
			for _, p := range ps {
				for _, u := range p.units {
					o := p.Outcomes[u.Token]
					seen[o.State]++
					if o.State != commit.Refused || c.Landed(u.Token) == 0 {
						continue
					}
					// What is told on the word of the catalog is only as true
					// as the catalog: the copy that landed must be one that it
					// denied.
					if a := p.Answers[c.LandedBy(u.Token)]; !o.Quarantine || a.Status < 400 || a.Status >= 500 {
						rt.Fatalf("unit %s was refused and is in the table\n%s", u.Key, strings.Join(p.Trace, "\n"))
					}
				}
			}
		})
	}
	for _, want := range []commit.State{commit.Committed, commit.Refused, commit.Unknown} {
		if seen[want] == 0 {
			t.Errorf("no unit ended as %s: %v", want, seen)
		}
	}
}

func TestNeverTwiceAlsoWithZombies(t *testing.T) {
	for range 10 {
		rapid.Check(t, func(rt *rapid.T) {
			c, ps := history(rt, true)
			wantWhole(rt, c, ps)
		})
	}
}
