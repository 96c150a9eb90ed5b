package rest

import (
	"context"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// prefix of all paths of this version.
const prefix = "/api/v1"

// Document is the OpenAPI document of the interface, in YAML.
func Document() ([]byte, error) {
	return (&Server{}).api(http.NewServeMux()).OpenAPI().YAML()
}

// api registers all operations.
func (s *Server) api(mux *http.ServeMux) huma.API {
	cfg := huma.DefaultConfig("Firn", "1")
	cfg.Info.Description = "Jobs, commits, executors and tables of a Firn scheduler. Errors are problem details with Firn's codes."
	// No page that loads scripts from elsewhere, and no links to schemas in bodies.
	cfg.DocsPath, cfg.SchemasPath, cfg.CreateHooks = "", "", nil
	cfg.OpenAPIPath = "/openapi"
	// A filter that is spelt wrong would answer with everything.
	cfg.RejectUnknownQueryParameters = true
	cfg.Transformers = []huma.Transformer{asProblem}
	cfg.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token": {Type: "http", Scheme: "bearer", Description: "a token of `firn token create --role client`"},
	}
	cfg.Security = []map[string][]string{{"token": {}}}
	api := humago.New(mux, cfg)
	s.statements(api)
	s.jobs(api)
	s.rows(api)
	s.commits(api)
	s.cluster(api)
	s.frames(api)
	// What the library would have answered with.
	delete(api.OpenAPI().Components.Schemas.Map(), "ErrorModel")
	delete(api.OpenAPI().Components.Schemas.Map(), "ErrorDetail")
	return api
}

// register adds an operation. What its handler returns as an error is told as a
// problem.
func register[I, O any](api huma.API, op huma.Operation, handle func(context.Context, *I) (*O, error)) {
	op.Path = prefix + op.Path
	schema := api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[problem](), true, "Problem")
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	op.Responses["default"] = &huma.Response{
		Description: "what went wrong", Content: map[string]*huma.MediaType{"application/problem+json": {Schema: schema}},
	}
	huma.Register(api, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := handle(ctx, in)
		return out, problemOf(err)
	})
}

// body is an answer in JSON.
type body[T any] struct {
	Body T
}
