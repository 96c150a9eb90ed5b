package rest

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/scheduler/jobview"
)

// executor is what is known of an executor.
type executor struct {
	ID      string   `json:"executor_id"`
	State   string   `json:"state" enum:"ready,draining,drained,returning"`
	Address string   `json:"address"`
	Slots   uint32   `json:"slots"`
	Running uint32   `json:"running"`
	Memory  int64    `json:"memory_bytes"`
	Holds   []string `json:"holds" doc:"jobs, and uploads, that may still read what it has on its disk"`
	Seen    string   `json:"seen,omitempty" format:"date-time"`
}

type executorList struct {
	Executors []executor `json:"executors"`
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
}

func executorOf(e *firnpb.ExecutorStatus) executor {
	return executor{
		ID: e.GetExecutorId(), State: e.GetState(), Address: e.GetAddress(), Slots: e.GetSlots(), Running: e.GetRunning(),
		Memory: e.GetMemoryBytes(), Holds: append([]string{}, e.GetHolds()...), Seen: jobview.Time(e.GetSeenUnixMs()),
	}
}

func (s *Server) cluster(api huma.API) {
	register(api, huma.Operation{OperationID: "list-executors", Method: http.MethodGet, Path: "/executors", Summary: "List executors", Tags: []string{"executors"}},
		func(ctx context.Context, _ *struct{}) (*body[executorList], error) {
			resp, err := s.cfg.Scheduler.ListExecutors(ctx, &firnpb.ListExecutorsRequest{})
			out := &body[executorList]{executorList{[]executor{}}}
			for _, e := range resp.GetExecutors() {
				out.Body.Executors = append(out.Body.Executors, executorOf(e))
			}
			return out, err
		})
	register(api, huma.Operation{OperationID: "drain-executor", Method: http.MethodPost, Path: "/executors/{id}/drain", Summary: "Have an executor take no more tasks; ask again until its state is drained", Tags: []string{"executors"}},
		func(ctx context.Context, in *struct {
			ID string `path:"id" maxLength:"200"`
		},
		) (*body[executor], error) {
			e, err := s.cfg.Scheduler.DrainExecutor(ctx, &firnpb.DrainExecutorRequest{ExecutorId: in.ID})
			return &body[executor]{executorOf(e)}, err
		})
	register(api, huma.Operation{OperationID: "list-tables", Method: http.MethodGet, Path: "/tables", Summary: "List the names of tables", Tags: []string{"tables"}},
		func(ctx context.Context, in *struct {
			Catalog   string   `query:"catalog" doc:"only of this catalog"`
			Namespace []string `query:"namespace" doc:"only of this namespace of the catalog, its parts separated by commas"`
		},
		) (*body[tableList], error) {
			resp, err := s.cfg.Scheduler.ListTables(ctx, &firnpb.ListTablesRequest{Catalog: in.Catalog, Namespace: in.Namespace})
			return &body[tableList]{tableList{append([]string{}, resp.GetTables()...)}}, err
		})
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
