package delta

import (
	"errors"
	"fmt"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
	"github.com/firn-project/firn/internal/objstore"
)

// onePut drives a unit over a store whose puts go as told, and wants it committed
// by one version.
func onePut(t *testing.T, h *harness, put func(n int, uri string, data []byte) error) {
	t.Helper()
	table := h.open()
	defer table.Close()
	u := h.Unit(t, "k", 1, 2)
	before := h.view().Clock().Number
	n := 0
	h.store.fail = func(op, uri string) error {
		if op != "put" {
			return nil
		}
		n++
		return put(n, uri, h.store.putting)
	}
	o := drive(t, table, u)
	h.store.fail = nil
	if o.State != commit.Committed || o.Deduplicated {
		t.Errorf("outcome %s: %v", committest.OutcomeText(o), o.Err)
	}
	if v := h.view(); v.Clock().Number != before+1 || h.Rows(t) != 2 {
		t.Errorf("version %d after %d, %d rows", v.Clock().Number, before, h.Rows(t))
	}
}

func landing(t *testing.T, uri string, data []byte) {
	t.Helper()
	if err := objstore.New(objstore.Config{}).PutIfAbsent(t.Context(), uri, data); err != nil {
		t.Error(err)
	}
}

// TestScenario06_LostReplyOfAPut: the version landed, the reply was lost, and what
// repeated the request was told that the version exists.
func TestScenario06_LostReplyOfAPut(t *testing.T) {
	onePut(t, newHarness(t), func(_ int, uri string, data []byte) error {
		landing(t, uri, data)
		return fmt.Errorf("412: %w", objstore.ErrExists)
	})
}

// TestScenario17_LostAcknowledgement: the version landed and silence followed; it
// isn't committed at the next version too.
func TestScenario17_LostAcknowledgement(t *testing.T) {
	onePut(t, newHarness(t), func(_ int, uri string, data []byte) error {
		landing(t, uri, data)
		return errors.New("connection reset")
	})
}

// TestScenario81_A409IsNoAnswer: nothing landed, though the store speaks of a
// conflict; the same version is put again.
func TestScenario81_A409IsNoAnswer(t *testing.T) {
	onePut(t, newHarness(t), func(n int, _ string, _ []byte) error {
		switch n {
		case 1:
			return errors.New("409 ConditionalRequestConflict")
		case 2:
			return fmt.Errorf("409: %w", objstore.ErrExists) // so some stores call it
		}
		return nil
	})
}

// TestScenario38_TwoRecoverers: two processes drive one unit of which a request
// was sent. It lands once, and both say so.
func TestScenario38_TwoRecoverers(t *testing.T) {
	h := newHarness(t)
	u := h.Unit(t, "k", 1, 2)
	a, b := h.open(), h.open()
	defer a.Close()
	defer b.Close()
	ra, err := a.Build(t.Context(), mustRead(t, a), []commit.Unit{u})
	if err != nil {
		t.Fatal(err)
	}
	rb, err := b.Build(t.Context(), mustRead(t, b), []commit.Unit{u})
	if err != nil {
		t.Fatal(err)
	}
	if got := a.Send(t.Context(), ra); got.Class != commit.AnswerOK {
		t.Errorf("answer %+v", got)
	}
	if got := b.Send(t.Context(), rb); got.Class != commit.AnswerConflict {
		t.Errorf("answer %+v", got)
	}
	for _, table := range []commit.Table{a, b, h.open()} {
		if o := drive(t, table, u); o.State != commit.Committed || o.Landed.SnapshotID != ra.SnapshotID {
			t.Errorf("outcome %s: %v", committest.OutcomeText(o), o.Err)
		}
	}
	if h.Rows(t) != 2 {
		t.Errorf("%d rows", h.Rows(t))
	}
}
