package paging_test

import (
	"strings"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/scheduler/paging"
)

// Items that come and go between two pages are neither repeated nor make others left
// out.
func TestPagesOfAListThatChanges(t *testing.T) {
	cursor := func(s string) paging.Cursor { return paging.Cursor{Number: int64(len(s)), Name: s} }
	page, next, err := paging.Page([]string{"a", "b", "cc", "dd"}, cursor, 2, "")
	if err != nil || strings.Join(page, "") != "ab" || next == "" {
		t.Fatal(page, next, err)
	}
	// b is gone, aa came.
	page, next, err = paging.Page([]string{"a", "aa", "cc", "dd"}, cursor, 2, next)
	if err != nil || strings.Join(page, " ") != "aa cc" || next == "" {
		t.Fatal(page, next, err)
	}
	page, next, err = paging.Page([]string{"a", "aa", "cc", "dd"}, cursor, 2, next)
	if err != nil || strings.Join(page, " ") != "dd" || next != "" {
		t.Fatal(page, next, err)
	}
	if page, next, err = paging.Page([]string{"a"}, cursor, 2, paging.Cursor{Number: 5}.Token()); err != nil || len(page) != 0 || next != "" {
		t.Fatal(page, next, err)
	}
	if page, next, err = paging.Page([]string{"", "x"}, cursor, 0, ""); err != nil || len(page) != 2 || next != "" {
		t.Fatal(page, next, err)
	}
}

func TestTokensOfOthers(t *testing.T) {
	for _, token := range []string{"x", "!", strings.Repeat("A", 1<<20), "Mjo1OmE", "MTotNTph", "MTo1"} {
		if _, err := paging.Parse(token); commit.CodeOf(err) != commit.CodeBadRequest {
			t.Errorf("%.20q: %v", token, err)
		}
	}
	c := paging.Cursor{Number: 1 << 40, Name: "a:b"}
	if got, err := paging.Parse(c.Token()); err != nil || got != c {
		t.Errorf("%v, %v", got, err)
	}
	for _, b := range [][2]int64{{-1, 0}, {0, -1}, {5, 5}, {6, 5}} {
		if err := paging.Between(b[0], b[1]); err == nil {
			t.Errorf("%v", b)
		}
	}
	if err := paging.Between(5, 0); err != nil {
		t.Error(err)
	}
}
