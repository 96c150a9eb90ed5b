package rest

import (
	"net/url"
	"strconv"
	"time"

	"github.com/firn-project/firn/scheduler/paging"
)

// Paging picks a page of a list.
type Paging struct {
	Limit uint32 `query:"limit" minimum:"1" maximum:"1000" default:"50"`
	Token string `query:"page_token" maxLength:"4096" doc:"next_page_token of the page before"`
}

// Span bounds a time.
type Span struct {
	Since time.Time `query:"since" doc:"at this time or later, in RFC 3339"`
	Until time.Time `query:"until" doc:"before this time"`
}

// ms gives both in milliseconds since 1970, 0 for none. A bound before 1970 bounds
// nothing.
func (s Span) ms() (since, until int64) {
	if !s.Since.IsZero() {
		since = max(0, s.Since.UnixMilli())
	}
	if !s.Until.IsZero() {
		until = s.Until.UnixMilli()
	}
	return since, until
}

// paged is a page in JSON, with the next one's address.
type paged[T any] struct {
	Link string `header:"Link" doc:"the next page's address, as rel=next; none after the last page"`
	Body T
}

// linkTo is the Link header of a list's next page.
func linkTo(path string, limit uint32, token string, filters url.Values) string {
	if token == "" {
		return ""
	}
	q := url.Values{"limit": {strconv.FormatUint(uint64(limit), 10)}, "page_token": {token}}
	for k, v := range filters {
		if v[0] != "" {
			q[k] = v
		}
	}
	return "<" + prefix + path + "?" + q.Encode() + `>; rel="next"`
}

// filters are those of a list, for the address of its next page.
func (s Span) filters(more map[string]string) url.Values {
	q := url.Values{}
	for k, v := range more {
		q.Set(k, v)
	}
	for k, t := range map[string]time.Time{"since": s.Since, "until": s.Until} {
		if !t.IsZero() {
			q.Set(k, t.Format(time.RFC3339Nano))
		}
	}
	return q
}

// named pages a list that is sorted by name.
func named[T any](all []T, name func(T) string, p Paging) ([]T, string, error) {
	return paging.Page(all, func(v T) paging.Cursor { return paging.Cursor{Name: name(v)} }, int(p.Limit), p.Token)
}
