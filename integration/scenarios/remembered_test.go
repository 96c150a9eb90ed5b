package scenarios_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/apache/iceberg-go/table"
	"github.com/google/uuid"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/integration/restcatalog"
)

// The traces here are about what is remembered of a commit that isn't in the branch
// any more, or never was.

// Another tool's REPLACE takes an acknowledged commit out of the branch: the same
// key is told so by the next scheduler, and nothing is applied again.
func TestB7_ReplacedByOthersOverREST(t *testing.T) {
	l := newLab(t, "")
	first := "INSERT INTO lake.s.t SELECT i AS id, 'w' AS w FROM range(100, 105) r(i)"
	l.must("before", 1)
	old := l.head()
	if st, err := l.run("k", first); err != nil || st.Report.RolledBack {
		t.Fatalf("%+v, %v", st.Report, err)
	}
	l.setHead(old)
	l.next = 1
	l.foreign()
	l.forget()
	sent := l.proxy.Requests()[restcatalog.Commit]
	st, err := l.run("k", first)
	if err != nil || !st.Report.RolledBack || !st.Report.Deduplicated || l.proxy.Requests()[restcatalog.Commit] != sent {
		t.Errorf("%+v, %v", st.Report, err)
	}
	l.holds(2)
}

// The budget is spent while no copy arrives: unknown, until somebody's commit proves
// that none lands any more.
func TestC8_BudgetSpentOverREST(t *testing.T) {
	l := newLabOf(t, "", restcatalog.Lies{}, soon)
	l.meet(restcatalog.Fault{Arrives: restcatalog.Never, Status: http.StatusConflict})
	j := l.submit("k", 5)
	l.await(j, commit.CommitUnknown)
	l.fired()
	l.meet(restcatalog.Fault{})
	l.next = 0
	l.foreign()
	l.resolve(j, commit.CommitRefused)
	if _, err := j.Wait(t.Context()); commit.ReasonOf(err) != commit.ReasonBudget {
		t.Errorf("told as %v", err)
	}
	l.holds(1)
}

// oldKey is a UUIDv7 of another time.
func oldKey(at time.Time) string {
	id := uuid.Must(uuid.NewV7())
	for i := range 6 {
		id[i] = byte(at.UnixMilli() >> (8 * (5 - i)))
	}
	return id.String()
}

// A tool resets the table's properties, snapshots expire and the journal is lost: a
// key that is older than all that is known is refused, not run again.
func TestC10_ALedgerThatIsResetOverREST(t *testing.T) {
	l := newLab(t, "")
	key := oldKey(time.Now().Add(-time.Hour))
	l.must(key, 5)
	var keys []string
	for name := range l.table().Properties() {
		if strings.HasPrefix(name, "firn.") {
			keys = append(keys, name)
		}
	}
	if len(keys) == 0 {
		t.Fatal("the table has no ledger")
	}
	l.apply(table.NewRemovePropertiesUpdate(keys))
	l.foreign()
	l.expire()
	l.forget()
	_, err := l.run(key, "INSERT INTO lake.s.t SELECT i AS id, 'w' AS w FROM range(0, 5) r(i)")
	if commit.CodeOf(err) != commit.CodeKeyTooOld {
		t.Errorf("told as %v", err)
	}
	l.holds(6)
	l.must("", 2) // a key that is made for the statement can't have been sent before
	l.holds(8)
}
