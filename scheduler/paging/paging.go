package paging

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/firn-project/firn/commit"
)

// Cursor is a place in a list: after the item with this number and name. The zero
// Cursor is the beginning.
type Cursor struct {
	Number int64
	Name   string
}

// version stands before what a token holds.
const version = "1"

// Token is the cursor as clients get it; they are to keep it as it is.
func (c Cursor) Token() string {
	return base64.RawURLEncoding.EncodeToString([]byte(version + ":" + strconv.FormatInt(c.Number, 10) + ":" + c.Name))
}

// maxToken bounds a token.
const maxToken = 4 << 10

// Parse reads a token; an empty one is the beginning.
func Parse(token string) (Cursor, error) {
	if token == "" {
		return Cursor{}, nil
	}
	bad := &commit.Error{
		Code: commit.CodeBadRequest, Op: "list", Cause: errors.New("the page token isn't one of Firn's"),
		Hint: "Send what the page before had as next_page_token, with the same filters, or none for the first page.",
	}
	if len(token) > maxToken {
		return Cursor{}, bad
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return Cursor{}, bad
	}
	v, rest, _ := strings.Cut(string(raw), ":")
	number, name, ok := strings.Cut(rest, ":")
	n, err := strconv.ParseInt(number, 10, 64)
	if v != version || !ok || err != nil || n < 0 {
		return Cursor{}, bad
	}
	return Cursor{Number: n, Name: name}, nil
}

// Page cuts a page out of items that are sorted by their cursors: those after the
// token's, at most limit of them (0 for all), and the token of the next page, which
// is empty after the last.
func Page[T any](items []T, cursor func(T) Cursor, limit int, token string) (page []T, next string, err error) {
	after, err := Parse(token)
	if err != nil {
		return nil, "", err
	}
	first := 0
	if token != "" {
		for first < len(items) && !less(after, cursor(items[first])) {
			first++
		}
	}
	page = items[first:]
	if limit > 0 && len(page) > limit {
		page = page[:limit]
		next = cursor(page[limit-1]).Token()
	}
	return page, next, nil
}

func less(a, b Cursor) bool {
	return a.Number < b.Number || a.Number == b.Number && a.Name < b.Name
}

// Between checks the bounds of a time filter, in milliseconds since 1970; 0 is none.
func Between(since, until int64) error {
	if since < 0 || until < 0 || until > 0 && until <= since {
		return &commit.Error{Code: commit.CodeBadRequest, Op: "list", Cause: fmt.Errorf("nothing is at or after %d and before %d", since, until), Hint: "since must be before until."}
	}
	return nil
}
