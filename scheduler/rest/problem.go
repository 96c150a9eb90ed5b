package rest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/firn-project/firn/commit"
)

// problem is an error as RFC 9457 has it, with what Firn knows of it.
type problem struct {
	Type   string `json:"type" doc:"always about:blank; code says which error it is"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Code   string `json:"code,omitempty" doc:"stable, such as FIRN-6008; see firn error explain"`
	// Retryable errors may pass by themselves.
	Retryable bool   `json:"retryable"`
	Hint      string `json:"hint,omitempty" doc:"what to do"`
	Tried     string `json:"tried,omitempty"`
	Reason    string `json:"reason,omitempty" doc:"of a refused commit"`
}

// Error implements error.
func (p *problem) Error() string { return p.Detail }

// GetStatus implements huma.StatusError.
func (p *problem) GetStatus() int { return p.Status }

// ContentType implements huma.ContentTypeFilter.
func (p *problem) ContentType(string) string { return "application/problem+json" }

// problemOf tells an error; nil stays nil.
func problemOf(err error) error {
	if err == nil {
		return nil
	}
	p := &problem{Type: "about:blank", Status: statusOf(err), Detail: err.Error(), Code: string(commit.CodeOf(err))}
	p.Title = http.StatusText(p.Status)
	p.Retryable = p.Status == http.StatusServiceUnavailable || p.Status == http.StatusGatewayTimeout
	if e, ok := errors.AsType[*commit.Error](err); ok {
		p.Hint, p.Tried, p.Reason = e.Hint, e.Tried, string(e.Reason)
		if info, ok := commit.Explain(string(e.Code)); ok {
			p.Title = info.Title
		}
	}
	return p
}

func statusOf(err error) int {
	switch commit.CodeOf(err) {
	case commit.CodeUnauthenticated:
		return http.StatusUnauthorized
	case commit.CodeKeyReused:
		return http.StatusConflict
	case commit.CodeResultLost:
		return http.StatusGone
	case commit.CodeSchedulerClosing, commit.CodeNoExecutors, commit.CodeJournalFull, commit.CodeQueueFull:
		return http.StatusServiceUnavailable
	case "":
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			return http.StatusGatewayTimeout
		}
	}
	switch commit.KindOf(err) {
	case commit.KindInvalid, commit.KindUsage:
		return http.StatusBadRequest
	case commit.KindPermission:
		return http.StatusForbidden
	case commit.KindNotFound:
		return http.StatusNotFound
	case commit.KindConflict, commit.KindUnknown, commit.KindCancelled:
		return http.StatusConflict
	case commit.KindTimeout:
		return http.StatusGatewayTimeout
	default:
		return http.StatusInternalServerError
	}
}

// writeProblem answers outside of the API.
func writeProblem(w http.ResponseWriter, err error) {
	p, ok := errors.AsType[*problem](err)
	if !ok {
		p, _ = errors.AsType[*problem](problemOf(err))
	}
	w.Header().Set("Content-Type", p.ContentType(""))
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the caller has gone
}

// asProblem tells what the library refuses, such as a bad parameter, in our words.
func asProblem(_ huma.Context, _ string, v any) (any, error) {
	m, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	p := &problem{Type: "about:blank", Title: m.Title, Status: m.Status, Detail: m.Detail}
	if m.Status < http.StatusInternalServerError {
		p.Code, p.Hint = string(commit.CodeBadRequest), "GET /openapi.yaml says what the request takes."
	}
	if m.Status == http.StatusUnsupportedMediaType {
		p.Hint = "Send the body as JSON, with the header Content-Type: application/json."
	}
	for _, e := range m.Errors {
		p.Detail += "; " + e.Location + ": " + e.Message
	}
	return p, nil
}
