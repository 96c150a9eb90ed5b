package scheduler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/flightsource"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/journal"
	"github.com/firn-project/firn/scheduler/planner"
)

// upload is a client's stream of Arrow batches on an executor. On the executor
// it takes the place of a job with one stage, one task and one output.
//
// It is on record from before a client hears of it until it is freed, so that it
// outlives the scheduler's process as the jobs do that read it. It is gone when its
// executor starts again.
type upload struct {
	id, attempt, executor, incarnation string

	columns []plan.Column
	expires time.Time
	// users are the jobs that read it.
	users int
}

// OpenUpload implements firnpb.ClientServiceServer.
func (s *Scheduler) OpenUpload(ctx context.Context, r *firnpb.OpenUploadRequest) (*firnpb.OpenUploadResponse, error) {
	columns, err := uploadColumns(r.GetArrowSchema())
	if err != nil {
		return nil, err
	}
	e, _, err := s.anyExecutor(ctx)
	if err != nil {
		return nil, err
	}
	u := &upload{
		id: newID("u-"), attempt: newID("a-"), executor: e.id, incarnation: e.incarnation, columns: columns, expires: time.Now().Add(s.cfg.UploadTTL),
	}
	rec, err := u.record()
	if err != nil {
		return nil, err
	}
	if err := s.scribe.record(ctx, journal.Batch{Uploads: []journal.Upload{rec}}); err != nil {
		return nil, err
	}
	if err := s.loop.call(ctx, func() { s.state.uploads[u.id] = u }); err != nil {
		return nil, err
	}
	return &firnpb.OpenUploadResponse{
		UploadId: u.id, Address: e.flight,
		Ticket: s.signer.Sign(&firnpb.Ticket{
			Purpose: wire.PurposeUpload, JobId: u.id, AttemptId: u.attempt, ExecutorId: u.executor, ExpiresUnixMs: u.expires.UnixMilli(),
		}),
	}, nil
}

// useUpload gives a job an upload to read. The job holds it until it ends.
func (s *Scheduler) useUpload(ctx context.Context, j *job, id string) (plan.Upload, []plan.Column, error) {
	var res plan.Upload
	var columns []plan.Column
	err := error(&commit.Error{
		Code: commit.CodeUploadNotFound, Op: "read upload", Object: id, Cause: errors.New("no such upload is known, or it has expired"),
		Hint: "Upload the data again and name the new upload.",
	})
	if cerr := s.loop.call(ctx, func() {
		u := s.state.uploads[id]
		if u == nil {
			return
		}
		e := s.state.executors[u.executor]
		if e == nil || e.incarnation != u.incarnation {
			return
		}
		u.users++
		j.uploads = append(j.uploads, id)
		err, columns = nil, u.columns
		res = plan.Upload{ID: id, Executor: u.executor, Location: plan.ShuffleLocation{
			Job: id, Attempt: u.attempt, Executor: u.executor, Address: e.flight,
			Ticket: s.signer.Sign(&firnpb.Ticket{
				Purpose: wire.PurposeRead, JobId: id, AttemptId: u.attempt, ExecutorId: u.executor,
				ExpiresUnixMs: time.Now().Add(ticketTTL).UnixMilli(),
			}),
		}}
	}); cerr != nil {
		return plan.Upload{}, nil, cerr
	}
	return res, columns, err
}

// releaseUpload ends a job's hold. The last reader that has done its work frees
// the upload; after a failure it stays for its time to live, so that the
// statement can be sent again.
func (s *Scheduler) releaseUpload(id string, done bool) {
	u := s.state.uploads[id]
	if u == nil {
		return
	}
	if u.users--; u.users == 0 && done {
		s.freeUpload(id)
	}
}

// freeUpload removes an upload from its executor.
func (s *Scheduler) freeUpload(id string) {
	s.forgetUpload(id)
	s.freeData(id, nil)
}

func (s *Scheduler) forgetUpload(id string) {
	delete(s.state.uploads, id)
	s.noted(nil, journal.Batch{Freed: []string{id}})
}

// loseUploads forgets what earlier incarnations of an executor kept.
func (s *Scheduler) loseUploads(executor, incarnation string) {
	for id, u := range s.state.uploads {
		if u.executor == executor && u.incarnation != incarnation {
			s.forgetUpload(id)
		}
	}
}

// record is the upload as the journal keeps it.
func (u *upload) record() (journal.Upload, error) {
	columns, err := json.Marshal(u.columns)
	return journal.Upload{ID: u.id, Attempt: u.attempt, Executor: u.executor, Incarnation: u.incarnation, Columns: columns, Expires: u.expires}, err
}

// recoverUploads takes up the uploads of an earlier process, and lets the jobs that
// name them go on holding them.
func (s *Scheduler) recoverUploads(records []journal.Upload, jobs []*job) error {
	for _, r := range records {
		u := &upload{id: r.ID, attempt: r.Attempt, executor: r.Executor, incarnation: r.Incarnation, expires: r.Expires}
		if err := json.Unmarshal(r.Columns, &u.columns); err != nil {
			return fmt.Errorf("take up upload %s: %w", r.ID, err)
		}
		s.state.uploads[u.id] = u
		for _, j := range jobs {
			if j.names(u.id) {
				u.users++
				j.uploads = append(j.uploads, u.id)
			}
		}
	}
	return nil
}

// names says whether the id of an upload or a frame stands in what the job was
// submitted with, or in its plan. Should it stand there for another reason, it is
// kept for longer than it has to be.
func (j *job) names(id string) bool {
	if strings.Contains(j.sql, id) || j.resume != nil && bytes.Contains(j.resume.plan, []byte(id)) {
		return true
	}
	top, ok := j.plan.(plan.Node)
	if !ok {
		return false
	}
	raw, err := plan.Encode(top)
	return err == nil && bytes.Contains(raw, []byte(id))
}

// uploadColumns reads the schema of an upload: an Arrow IPC stream without
// batches.
func uploadColumns(raw []byte) (columns []plan.Column, err error) {
	refuse := func(cause error) error { return badRequest("open upload", cause) }
	defer func() {
		if p := recover(); p != nil { // the bytes come from a client
			err = refuse(fmt.Errorf("not an Arrow schema: %v", p))
		}
	}()
	rd, err := wire.NewIPCReader(raw)
	if err != nil {
		return nil, refuse(fmt.Errorf("not an Arrow schema: %w", err))
	}
	defer rd.Release()
	seen := map[string]bool{}
	for _, f := range rd.Schema().Fields() {
		t, err := duckType(f.Type)
		if err != nil {
			return nil, refuse(fmt.Errorf("column %s: %w", f.Name, err))
		}
		if name := strings.ToLower(f.Name); seen[name] || name == "" {
			return nil, refuse(fmt.Errorf("column name %q stands twice, or is empty", f.Name))
		} else {
			seen[name] = true
		}
		columns = append(columns, plan.Column{Name: f.Name, Type: t, Required: !f.Nullable})
	}
	if len(columns) == 0 {
		return nil, refuse(errors.New("the schema has no columns"))
	}
	return columns, nil
}

// plainTypes are Arrow types with one DuckDB type.
var plainTypes = map[arrow.Type]string{
	arrow.BOOL: "BOOLEAN", arrow.INT8: "TINYINT", arrow.INT16: "SMALLINT", arrow.INT32: "INTEGER", arrow.INT64: "BIGINT",
	arrow.UINT8: "UTINYINT", arrow.UINT16: "USMALLINT", arrow.UINT32: "UINTEGER", arrow.UINT64: "UBIGINT",
	arrow.FLOAT32: "FLOAT", arrow.FLOAT64: "DOUBLE", arrow.DATE32: "DATE", arrow.DATE64: "DATE",
	arrow.TIME32: "TIME", arrow.TIME64: "TIME",
	arrow.STRING: "VARCHAR", arrow.LARGE_STRING: "VARCHAR", arrow.STRING_VIEW: "VARCHAR",
	arrow.BINARY: "BLOB", arrow.LARGE_BINARY: "BLOB", arrow.BINARY_VIEW: "BLOB", arrow.FIXED_SIZE_BINARY: "BLOB",
	arrow.NULL: `"NULL"`,
}

// duckType names the DuckDB type that an Arrow type is read as.
func duckType(t arrow.DataType) (string, error) {
	switch t := t.(type) {
	case *arrow.TimestampType:
		if t.TimeZone != "" {
			return "TIMESTAMP WITH TIME ZONE", nil
		}
		return map[arrow.TimeUnit]string{
			arrow.Second: "TIMESTAMP_S", arrow.Millisecond: "TIMESTAMP_MS", arrow.Microsecond: "TIMESTAMP", arrow.Nanosecond: "TIMESTAMP_NS",
		}[t.Unit], nil
	case *arrow.MapType:
		key, err := duckType(t.KeyType())
		if err != nil {
			return "", err
		}
		item, err := duckType(t.ItemType())
		return "MAP(" + key + ", " + item + ")", err
	case arrow.ListLikeType:
		item, err := duckType(t.Elem())
		return item + "[]", err
	case *arrow.StructType:
		var parts []string
		for _, f := range t.Fields() {
			item, err := duckType(f.Type)
			if err != nil {
				return "", err
			}
			parts = append(parts, `"`+strings.ReplaceAll(f.Name, `"`, `""`)+`" `+item)
		}
		return "STRUCT(" + strings.Join(parts, ", ") + ")", nil
	case *arrow.DictionaryType:
		return duckType(t.ValueType)
	case arrow.DecimalType:
		return fmt.Sprintf("DECIMAL(%d,%d)", t.GetPrecision(), t.GetScale()), nil
	case arrow.ExtensionType:
		if t.ExtensionName() == "arrow.uuid" {
			return "UUID", nil
		}
		return duckType(t.StorageType())
	}
	if name, ok := plainTypes[t.ID()]; ok {
		return name, nil
	}
	return "", fmt.Errorf("type %s can't be uploaded", t)
}

// keepSources has engines keep what their queries gave as long as the job may read it.
func (s *Scheduler) keepSources(j *job) {
	flight := j.flight
	s.wg.Go(func() {
		flight.Keep(func(renewed plan.Source) {
			s.loop.put(func() {
				for i, src := range j.planned.FlightSources() {
					if !j.hasEnded() && src.Flight.Same(renewed.Flight) {
						j.planned = j.planned.Reread(map[int]plan.Source{i: renewed})
					}
				}
			})
		})
	})
}

// endSources ends the engines' queries of a job.
func (s *Scheduler) endSources(flight *flightsource.Job, readToTheEnd bool) {
	s.wg.Go(flight.End(readToTheEnd))
}

// runSource has engines run a job's queries again. What they give is on record before
// a task reads it, and after all that was made of the execution before was dropped.
func (s *Scheduler) runSource(j *job, stage int) {
	flight, sources := j.flight, j.planned.FlightSources()
	s.log.Warn("what an engine gave is gone; its query runs again", slog.String("job_id", j.id), slog.Int("stage", stage))
	s.wg.Go(func() {
		again, err := flight.Again(s.life, sources)
		s.loop.put(func() {
			switch {
			case j.hasEnded(), s.life.Err() != nil:
				return
			case err == nil:
				err = s.takeSources(j, again)
			}
			if err != nil {
				s.failJob(j, err)
				return
			}
			s.keepSources(j)
			s.apply(j, graph.SourceReady{Stage: stage})
		})
	})
}

// takeSources has the job read other endpoints from now on.
func (s *Scheduler) takeSources(j *job, sources map[int]plan.Source) error {
	top, err := plan.Decode(j.planBody)
	if err != nil {
		return err
	}
	if j.planBody, err = plan.Encode(planner.Reread(top, sources)); err != nil {
		return err
	}
	raw, err := planRecord(j)
	if err != nil {
		return err
	}
	j.planned = j.planned.Reread(sources)
	s.noted(j, journal.Batch{Plans: []journal.Plan{{JobID: j.id, Body: raw}}})
	return nil
}
