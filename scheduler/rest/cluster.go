package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/scheduler/jobview"
)

// executor is what is known of an executor.
type executor struct {
	ID      string   `json:"executor_id"`
	State   string   `json:"state" enum:"ready,draining,drained,returning,passed_over"`
	Address string   `json:"address"`
	Slots   uint32   `json:"slots"`
	Running uint32   `json:"running"`
	Memory  int64    `json:"memory_bytes"`
	Holds   []string `json:"holds" doc:"jobs, and uploads, that may still read what it has on its disk"`
	Seen    string   `json:"seen,omitempty" format:"date-time"`
}

type executorList struct {
	Executors []executor `json:"executors"`
	Next      string     `json:"next_page_token,omitempty" doc:"of the next page; none after the last"`
}

// table is a table as it is now.
type table struct {
	Name          string            `json:"table"`
	Format        string            `json:"format"`
	FormatVersion uint32            `json:"format_version"`
	UUID          string            `json:"uuid"`
	Location      string            `json:"location"`
	SnapshotID    string            `json:"current_snapshot_id,omitempty"`
	Snapshots     uint32            `json:"snapshots"`
	Rows          int64             `json:"rows"`
	Files         int64             `json:"files"`
	Bytes         int64             `json:"bytes"`
	Schema        json.RawMessage   `json:"schema,omitempty"`
	Spec          json.RawMessage   `json:"partition_spec,omitempty"`
	Properties    map[string]string `json:"properties,omitempty"`
}

type tableList struct {
	Tables []string `json:"tables"`
	Next   string   `json:"next_page_token,omitempty" doc:"of the next page; none after the last"`
}

func executorOf(e *firnpb.ExecutorStatus) executor {
	return executor{
		ID: e.GetExecutorId(), State: e.GetState(), Address: e.GetAddress(), Slots: e.GetSlots(), Running: e.GetRunning(),
		Memory: e.GetMemoryBytes(), Holds: append([]string{}, e.GetHolds()...), Seen: jobview.Time(e.GetSeenUnixMs()),
	}
}

func (s *Server) listExecutors(ctx context.Context, in *struct{ Paging }) (*paged[executorList], error) {
	resp, err := s.cfg.Scheduler.ListExecutors(ctx, &firnpb.ListExecutorsRequest{})
	if err != nil {
		return nil, err
	}
	all := slices.SortedFunc(slices.Values(resp.GetExecutors()), func(a, b *firnpb.ExecutorStatus) int {
		return strings.Compare(a.GetExecutorId(), b.GetExecutorId())
	})
	page, next, err := named(all, (*firnpb.ExecutorStatus).GetExecutorId, in.Paging)
	out := &paged[executorList]{Link: linkTo("/executors", in.Limit, next, nil), Body: executorList{[]executor{}, next}}
	for _, e := range page {
		out.Body.Executors = append(out.Body.Executors, executorOf(e))
	}
	return out, err
}

func (s *Server) listTables(ctx context.Context, in *struct {
	Paging
	Catalog   string   `query:"catalog" doc:"only of this catalog"`
	Namespace []string `query:"namespace" doc:"only of this namespace of the catalog, its parts separated by commas"`
},
) (*paged[tableList], error) {
	resp, err := s.cfg.Scheduler.ListTables(ctx, &firnpb.ListTablesRequest{Catalog: in.Catalog, Namespace: in.Namespace})
	if err != nil {
		return nil, err
	}
	page, next, err := named(slices.Sorted(slices.Values(resp.GetTables())), func(name string) string { return name }, in.Paging)
	filters := url.Values{"catalog": {in.Catalog}, "namespace": {strings.Join(in.Namespace, ",")}}
	return &paged[tableList]{Link: linkTo("/tables", in.Limit, next, filters), Body: tableList{append([]string{}, page...), next}}, err
}

func (s *Server) cluster(api huma.API) {
	register(api, huma.Operation{OperationID: "list-executors", Method: http.MethodGet, Path: "/executors", Summary: "List executors", Tags: []string{"executors"}},
		s.listExecutors)
	register(api, huma.Operation{OperationID: "drain-executor", Method: http.MethodPost, Path: "/executors/{id}/drain", Summary: "Have an executor take no more tasks; ask again until its state is drained", Tags: []string{"executors"}},
		func(ctx context.Context, in *struct {
			ID string `path:"id" maxLength:"200"`
		},
		) (*body[executor], error) {
			e, err := s.cfg.Scheduler.DrainExecutor(ctx, &firnpb.DrainExecutorRequest{ExecutorId: in.ID})
			return &body[executor]{executorOf(e)}, err
		})
	register(api, huma.Operation{OperationID: "list-tables", Method: http.MethodGet, Path: "/tables", Summary: "List the names of tables", Tags: []string{"tables"}},
		s.listTables)
	register(api, huma.Operation{OperationID: "get-table", Method: http.MethodGet, Path: "/tables/{table}", Summary: "Describe a table", Tags: []string{"tables"}},
		func(ctx context.Context, in *struct {
			Table string `path:"table" maxLength:"2000" example:"lake.air.flights" doc:"the table's name as in SQL"`
		},
		) (*body[table], error) {
			t, err := s.cfg.Scheduler.DescribeTable(ctx, &firnpb.DescribeTableRequest{Table: in.Table})
			return &body[table]{table{
				Name: t.GetTable(), Format: t.GetFormat(), FormatVersion: t.GetFormatVersion(), UUID: t.GetUuid(), Location: t.GetLocation(),
				SnapshotID: t.GetCurrentSnapshotId(), Snapshots: t.GetSnapshots(), Rows: t.GetRows(), Files: t.GetFiles(), Bytes: t.GetBytes(),
				Schema: t.GetSchemaJson(), Spec: t.GetPartitionSpecJson(), Properties: t.GetProperties(),
			}}, err
		})
}
