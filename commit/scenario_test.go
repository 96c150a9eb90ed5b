package commit_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
)

var rewrite = flag.Bool("rewrite", false, "write what the scenarios print into their files")

// TestScenarios runs the files under testdata. A file is a list of blocks,
// parted by blank lines: commands, a line "----", what they print. Lines that
// begin with # are comments. See play for the commands.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			s := &scenario{procs: map[string]*process{}, units: map[string]commit.Unit{}}
			var out []string
			for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
				input, want, _ := strings.Cut(block, "\n----")
				got := ""
				for line := range strings.SplitSeq(input, "\n") {
					if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
						continue
					}
					text, err := s.play(strings.Fields(line))
					if err != nil {
						t.Fatalf("%s: %v", line, err)
					}
					got += text
				}
				if got = strings.TrimSpace(got); got != strings.TrimSpace(want) && !*rewrite {
					t.Errorf("%s\nprints\n%s\nwant\n%s", input, got, strings.TrimSpace(want))
				}
				out = append(out, strings.TrimSpace(input+"\n----\n"+got))
				if got == "" && !strings.Contains(block, "\n----") {
					out[len(out)-1] = input
				}
			}
			if *rewrite {
				if err := os.WriteFile(f, []byte(strings.Join(out, "\n\n")+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

type scenario struct {
	c     *committest.Catalog
	procs map[string]*process
	units map[string]commit.Unit
	jobs  int
}

func (s *scenario) play(w []string) (string, error) {
	switch w[0] {
	// table [pointer] [no-seat] [strip-tokens] [stale-seat-400] [no-ledger] [heads-only]
	case "table":
		mode := committest.Mode{}
		for _, f := range w[1:] {
			on := map[string]*bool{
				"pointer": &mode.Pointer, "no-seat": &mode.NoSeat, "strip-tokens": &mode.StripTokens, "stale-seat-400": &mode.StaleSeat400,
				"no-ledger": &mode.NoLedger, "heads-only": &mode.HeadsOnly,
			}[f]
			if on == nil {
				return "", fmt.Errorf("no mode %q", f)
			}
			*on = true
		}
		s.c = committest.NewCatalog(mode)
	// unit NAME KEY ROWS: one file; ROWS 0 is a unit without files
	case "unit":
		rows, err := strconv.Atoi(w[3])
		if err != nil {
			return "", err
		}
		s.jobs++
		s.units[w[1]] = committest.NewUnit(s.c, w[2], "j"+strconv.Itoa(s.jobs), min(rows, 1), rows)
	// process NAME UNIT...: a committer that drives the units
	case "process":
		p := &process{}
		for _, n := range w[2:] {
			p.units = append(p.units, s.units[n])
		}
		p.start(s.c)
		s.procs[w[1]] = p
	case "step", "run", "restart", "fault", "poison", "cancel", "stale-read", "fail-read":
		p := s.procs[w[1]]
		if p == nil {
			return "", fmt.Errorf("no process %q", w[1])
		}
		return s.drive(p, w)
	default:
		return s.world(w)
	}
	return "", nil
}

// drive has the commands about one process.
func (s *scenario) drive(p *process, w []string) (string, error) {
	seen := len(p.Trace)
	switch w[0] {
	// step PROCESS ACTION: until it has carried out an action of that name
	case "step":
		for range 1000 {
			more := p.Step()
			if last := p.Trace[len(p.Trace)-1]; strings.HasPrefix(last, w[2]) {
				return lines(w[1], p.Trace[seen:]), nil
			}
			if !more {
				break
			}
		}
		return "", fmt.Errorf("no %q in %v", w[2], p.Trace[seen:])
	// run PROCESS: to the end
	case "run":
		for p.Step() {
		}
	// restart PROCESS: it's killed; the new one has the send records
	case "restart":
		p.start(s.c)
		return "", nil
	// fault PROCESS NAME...: for its next sends
	case "fault":
		return "", p.d.Inject(w[2:]...)
	// poison PROCESS UNIT: the catalog doesn't take that unit
	case "poison":
		p.d.Poison = map[string]bool{s.units[w[2]].Files.Path(0): true}
	// cancel PROCESS UNIT
	case "cancel":
		acts := p.Machine.Step(commit.Cancel{Token: s.units[w[2]].Token}, p.Now)
		text := ""
		for _, a := range acts {
			if f, ok := a.(commit.Finish); ok {
				text += lines(w[1], []string{"finish " + committest.OutcomeText(f.Outcome)})
			}
		}
		return text, nil
	// stale-read PROCESS AGO: its next read is that many changes old
	case "stale-read":
		ago, err := strconv.Atoi(w[2])
		p.d.StaleReads(1, ago)
		return "", err
	// fail-read PROCESS N: its next reads fail
	case "fail-read":
		n, err := strconv.Atoi(w[2])
		p.d.FailReads(n, errors.New("catalog is down"))
		return "", err
	}
	return lines(w[1], p.Trace[seen:]), nil
}

func lines(who string, trace []string) (text string) {
	for _, l := range trace {
		text += who + ": " + l + "\n"
	}
	return text
}

// world has the commands about the table.
func (s *scenario) world(w []string) (string, error) {
	switch w[0] {
	case "foreign": // foreign BRANCH: somebody else's append
		s.c.Foreign(w[1])
	case "head": // head BRANCH SNAPSHOT: a rollback or a roll forward
		s.c.SetHead(w[1], strings.TrimPrefix(w[2], "none"))
	case "add-column":
		s.c.AddColumn()
	case "drop-column":
		s.c.DropColumn()
	case "expire": // all snapshots but the heads
		s.c.Expire()
	case "reset-ledger":
		s.c.SetLedger("")
	case "change-spec":
		s.c.ChangeSpec()
	case "drop":
		s.c.Drop()
	case "recreate":
		s.c.Recreate()
	case "deliver": // copies that were held back arrive
		return fmt.Sprintf("%d landed\n", s.c.Deliver()), nil
	case "show": // show UNIT...: what the table has of them
		text := fmt.Sprintf("head %q, %d rows, metadata %v\n", s.c.Head("main"), s.c.Rows("main"), s.c.MetadataFiles())
		for _, n := range w[1:] {
			text += fmt.Sprintf("%s: %d times\n", n, s.c.Times(s.units[n].Token))
		}
		return text, nil
	default:
		return "", fmt.Errorf("no command %q", w[0])
	}
	return "", nil
}
