package sql

import (
	"context"
	"errors"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/plan"
)

// CatalogAdmin is a Catalogs that catalogs can be added to, removed from and
// probed in. Errors are *commit.Error, or wrap one.
type CatalogAdmin interface {
	// CatalogInfos describes all catalogs, without their secrets.
	CatalogInfos(ctx context.Context) ([]CatalogInfo, error)
	// CreateCatalog opens a catalog and keeps its definition.
	CreateCatalog(ctx context.Context, def CatalogDef) error
	// DropCatalog forgets a catalog that CreateCatalog made. Its tables stay
	// in it.
	DropCatalog(ctx context.Context, name string, ifExists bool) error
	// CheckCatalog probes what a catalog does, in a namespace and a table that
	// it makes and removes, and keeps what it found. The error says only that
	// the probes couldn't be run.
	CheckCatalog(ctx context.Context, name string) (CatalogReport, error)
	// Writable says why nothing may be written to the tables of a catalog.
	Writable(ctx context.Context, catalog string) error
}

// CatalogDef is a CREATE CATALOG. Its properties may hold secrets.
type CatalogDef struct {
	Name        string
	IfNotExists bool
	Properties  map[string]string
}

// String keeps the secrets out of logs.
func (d CatalogDef) String() string { return "catalog " + d.Name }

// GoString is String, for %#v.
func (d CatalogDef) GoString() string { return d.String() }

// CatalogInfo is a catalog as SHOW CATALOGS shows it.
type CatalogInfo struct {
	Name, Type string
	// URI has no password in it.
	URI string
	// Origin says where its definition stands, "configuration" or "statement".
	Origin string
	// Mode is what CheckCatalog found, empty when it never ran.
	Mode CatalogMode
	// Checked is when it ran.
	Checked time.Time
}

// CatalogMode is how Firn commits to the tables of a catalog, by what its probes
// found.
type CatalogMode string

// Modes of catalogs.
const (
	// ModeSeat: a request that somebody else was faster than never lands.
	ModeSeat CatalogMode = "seat"
	// ModeNoSeat: it might, so that a commit whose answer was lost stays
	// unknown unless it's found, and overwrites are refused.
	ModeNoSeat CatalogMode = "no-seat"
	// ModeUnfit: commits of others would be lost; nothing is written.
	ModeUnfit CatalogMode = "unfit"
)

// CatalogReport is what the probes of a catalog found.
type CatalogReport struct {
	Catalog string    `json:"catalog"`
	At      time.Time `json:"at"`
	// Mode is empty when the probes that decide it couldn't be finished.
	Mode CatalogMode `json:"mode"`
	// Why says it in a sentence.
	Why    string         `json:"why"`
	Probes []CatalogProbe `json:"probes"`
}

// CatalogProbe is one probe.
type CatalogProbe struct {
	Name    string       `json:"probe"`
	Tried   string       `json:"tried"`
	Answer  string       `json:"answer"`
	Verdict ProbeVerdict `json:"verdict"`
}

// ProbeVerdict judges an answer.
type ProbeVerdict string

// Verdicts.
const (
	// ProbeOK: as the specification has it.
	ProbeOK ProbeVerdict = "ok"
	// ProbeWarning: not as the specification has it, and Firn can do with it.
	ProbeWarning ProbeVerdict = "warning"
	// ProbeFailed: something that Firn builds on isn't so.
	ProbeFailed ProbeVerdict = "failed"
	// ProbeSkipped: it doesn't apply.
	ProbeSkipped ProbeVerdict = "skipped"
)

// admin is the Catalogs as a CatalogAdmin.
func (a *Analyzer) admin(op, object string) (CatalogAdmin, error) {
	if c, ok := a.Catalogs.(CatalogAdmin); ok {
		return c, nil
	}
	return nil, &commit.Error{
		Code: commit.CodeSQLUnsupportedStatement, Op: op, Object: object, Cause: errors.New("the catalogs of this scheduler are fixed"),
		Hint: "Configure catalogs in the scheduler's file.",
	}
}

// Writable refuses a write to a catalog that its probes found unfit.
func (a *Analyzer) Writable(ctx context.Context, name commit.TableName) error {
	if len(name.Namespace) == 0 {
		return nil // a path, which has no catalog
	}
	if c, ok := a.Catalogs.(CatalogAdmin); ok {
		return c.Writable(ctx, name.Catalog)
	}
	return nil
}

func (a *Analyzer) createCatalog(ctx context.Context, body *CreateCatalog) error {
	c, err := a.admin("create catalog", body.Name.Name)
	if err != nil {
		return err
	}
	def := CatalogDef{Name: body.Name.Name, IfNotExists: body.IfNotExists, Properties: map[string]string{}}
	for _, p := range body.Properties {
		def.Properties[p.Key] = p.Value
	}
	return c.CreateCatalog(ctx, def)
}

func (a *Analyzer) dropCatalog(ctx context.Context, body *DropCatalog, session *plan.Session) error {
	c, err := a.admin("drop catalog", body.Name.Name)
	if err != nil {
		return err
	}
	if err := c.DropCatalog(ctx, body.Name.Name, body.IfExists); err != nil {
		return err
	}
	if session.Catalog == body.Name.Name {
		*session = plan.Session{}
	}
	return nil
}

// checkCatalog gives one row for each probe and one for the result.
func (a *Analyzer) checkCatalog(ctx context.Context, body *CheckCatalog, r *Result) error {
	c, err := a.admin("check catalog", body.Name.Name)
	if err != nil {
		return err
	}
	report, err := c.CheckCatalog(ctx, body.Name.Name)
	if err != nil {
		return err
	}
	r.Columns = []string{"probe", "verdict", "answer", "tried"}
	for _, p := range report.Probes {
		r.Rows = append(r.Rows, []any{p.Name, string(p.Verdict), p.Answer, p.Tried})
	}
	mode, verdict := string(report.Mode), ProbeOK
	switch report.Mode {
	case ModeSeat:
	case ModeNoSeat:
		verdict = ProbeWarning
	case ModeUnfit:
		verdict = ProbeFailed
	default:
		mode, verdict = "undecided", ProbeFailed
	}
	r.Rows = append(r.Rows, []any{"mode", string(verdict), mode, report.Why})
	return nil
}

// showCatalogs lists the catalogs, with what is known of them.
func (a *Analyzer) showCatalogs(ctx context.Context, r *Result) error {
	c, ok := a.Catalogs.(CatalogAdmin)
	if !ok {
		names, err := a.Catalogs.Catalogs(ctx)
		r.Columns = []string{"catalog"}
		for _, n := range names {
			r.Rows = append(r.Rows, []any{n})
		}
		return err
	}
	infos, err := c.CatalogInfos(ctx)
	r.Columns = []string{"catalog", "type", "uri", "origin", "mode", "checked"}
	for _, i := range infos {
		mode, checked := string(i.Mode), ""
		if mode == "" {
			mode = "not checked"
		}
		if !i.Checked.IsZero() {
			checked = i.Checked.UTC().Format(time.RFC3339)
		}
		r.Rows = append(r.Rows, []any{i.Name, i.Type, i.URI, i.Origin, mode, checked})
	}
	return err
}
