package history_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/firn-project/firn/integration/history"
)

// TestCheck: what each thing that a writer was told allows.
func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		told history.Told
		rows map[int64]int
		want string
	}{
		"committed":            {history.Committed, map[int64]int{1: 1, 2: 1}, ""},
		"committed, lost":      {history.Committed, map[int64]int{}, "2 of 2 rows are missing"},
		"committed, torn":      {history.Committed, map[int64]int{2: 1}, "1 of 2 rows are missing"},
		"committed, twice":     {history.Committed, map[int64]int{1: 2, 2: 2}, "2 of 2 rows are there more than once"},
		"failed":               {history.Failed, map[int64]int{}, ""},
		"failed, there":        {history.Failed, map[int64]int{1: 1, 2: 1}, "2 of 2 rows are there"},
		"failed, torn":         {history.Failed, map[int64]int{1: 1}, "1 of 2 rows are there"},
		"unknown, landed":      {history.Unknown, map[int64]int{1: 1, 2: 1}, ""},
		"unknown, not landed":  {history.Unknown, map[int64]int{}, ""},
		"unknown, torn":        {history.Unknown, map[int64]int{1: 1}, "neither all nor none"},
		"unknown, twice":       {history.Unknown, map[int64]int{1: 2, 2: 1}, "1 of 2 rows are there more than once"},
		"never answered, torn": {history.Open, map[int64]int{2: 1}, "neither all nor none"},
		"foreign row":          {history.Committed, map[int64]int{1: 1, 2: 1, 3: 1}, "row 3 is there 1 times and nobody wrote it"},
	} {
		t.Run(name, func(t *testing.T) {
			h := history.New()
			invoke(t, h, "u", 1, 2).Tell(c.told)
			bad := h.Check(c.rows)
			if c.want == "" && len(bad) > 0 || c.want != "" && (len(bad) != 1 || !strings.Contains(bad[0], c.want)) {
				t.Errorf("found %q, want %q", bad, c.want)
			}
		})
	}
}

// TestRetries: a refusal ends with the next submission, a commit never.
func TestRetries(t *testing.T) {
	h := history.New()
	first := invoke(t, h, "u", 1)
	first.Tell(history.Failed)
	second := invoke(t, h, "u", 1)
	if bad := h.Check(map[int64]int{1: 1}); len(bad) > 0 {
		t.Errorf("a unit that is submitted again may land: %q", bad)
	}
	first.Tell(history.Failed)
	if told := h.Told("u"); told != history.Open {
		t.Errorf("the first submission's refusal says nothing of the second: %s", told)
	}
	second.Tell(history.Committed)
	second.Tell(history.Unknown)
	third := invoke(t, h, "u", 1)
	if bad := h.Check(map[int64]int{}); len(bad) != 1 {
		t.Errorf("a commit that is forgotten when it's asked for again: %q", bad)
	}
	second.Tell(history.Failed)
	if bad := h.Check(map[int64]int{1: 1}); len(bad) > 0 {
		t.Errorf("a late word of an earlier submission: %q", bad)
	}
	third.Tell(history.Failed)
	if bad := h.Check(map[int64]int{1: 1}); !slices.Equal(bad, []string{"unit u was told failed after it was told committed"}) {
		t.Errorf("a commit that is taken back: %q", bad)
	}
}

// TestMisuse: histories that can't be judged aren't recorded.
func TestMisuse(t *testing.T) {
	h := history.New()
	invoke(t, h, "u", 1)
	for name, rows := range map[string][]int64{"v": {2, 1}, "u": {2}, "w": nil} {
		if _, err := h.Invoke(name, rows); err == nil {
			t.Errorf("unit %s with the rows %d: no error", name, rows)
		}
	}
	invoke(t, h, "x", 2)
}

func invoke(t *testing.T, h *history.History, name string, rows ...int64) history.Attempt {
	t.Helper()
	a, err := h.Invoke(name, rows)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
