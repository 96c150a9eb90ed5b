package hostile

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
)

// attacks are by the names that the test's table has.
var attacks = map[string]attack{
	"nothing": {},

	"another table's file": {forge: first(func(c *commit.File, f Facts) { c.Path = f.OtherTable })},
	"another job's file":   {forge: first(func(c *commit.File, f Facts) { c.Path = f.OtherJob })},
	"another job's file of this attempt": {forge: first(func(c *commit.File, f Facts) {
		dir, _ := split(f.OtherJob)
		_, name := split(c.Path)
		c.Path = dir + name
	})},
	"steps up": {forge: first(func(c *commit.File, f Facts) {
		dir, name := split(c.Path)
		c.Path = dir + "../" + name
	})},
	"steps up, escaped": {forge: first(func(c *commit.File, f Facts) {
		dir, name := split(c.Path)
		c.Path = dir + "%2e%2E/" + name
	})},
	"steps up, escaped twice": {forge: first(func(c *commit.File, f Facts) {
		dir, name := split(c.Path)
		c.Path = dir + "%252e%252e%252f" + name
	})},
	"steps up, with backslashes": {forge: first(func(c *commit.File, f Facts) {
		dir, name := split(c.Path)
		c.Path = dir + `..\` + name
	})},
	"absolute":          {forge: first(func(c *commit.File, f Facts) { c.Path = "/etc/passwd" })},
	"absolute URI":      {forge: first(func(c *commit.File, f Facts) { c.Path = "file:///etc/passwd" })},
	"another store":     {forge: first(func(c *commit.File, f Facts) { _, name := split(c.Path); c.Path = "s3://elsewhere/" + name })},
	"a query":           {forge: first(func(c *commit.File, f Facts) { c.Path += "?versionId=1" })},
	"a control sign":    {forge: first(func(c *commit.File, f Facts) { c.Path += "\x00" })},
	"no name":           {forge: first(func(c *commit.File, f Facts) { c.Path = "" })},
	"twice the same":    {forge: func(files []commit.File, _ Facts) []commit.File { return append(files, files[0]) }},
	"another attempt":   {forge: first(func(c *commit.File, f Facts) { c.Attempt = f.Attempt })},
	"not written":       {forge: first(func(c *commit.File, f Facts) { c.Path = strings.Replace(c.Path, ".parquet", "x.parquet", 1) })},
	"more rows":         {forge: first(func(c *commit.File, f Facts) { c.Rows++ })},
	"fewer rows":        {forge: first(func(c *commit.File, f Facts) { c.Rows-- })},
	"another size":      {forge: first(func(c *commit.File, f Facts) { c.Size++ })},
	"an absurd size":    {forge: first(func(c *commit.File, f Facts) { c.Size = absurd })},
	"absurd rows":       {forge: first(func(c *commit.File, f Facts) { c.Rows = absurd })},
	"a negative size":   {forge: first(func(c *commit.File, f Facts) { c.Size = -1 })},
	"swapped bounds":    {forge: first(func(c *commit.File, f Facts) { c.Lower, c.Upper = c.Upper, c.Lower })},
	"bounds of no type": {forge: first(func(c *commit.File, f Facts) { c.Lower[field] = []byte("x") })},
	"more nulls than values": {forge: first(func(c *commit.File, f Facts) {
		c.NullCounts = map[int]int64{field: c.Rows + 1}
	})},
	"another schema": {forge: first(func(c *commit.File, f Facts) { c.SchemaID = 7 })},
	"another spec":   {forge: first(func(c *commit.File, f Facts) { c.SpecID = 7 })},
	"another format": {forge: first(func(c *commit.File, f Facts) { c.Format = "ORC" })},
	"a partition value of no field": {forge: first(func(c *commit.File, f Facts) {
		c.Partition = []commit.PartitionValue{{FieldID: 1000, Value: []byte("x")}}
	})},
	"a path of a megabyte": {forge: first(func(c *commit.File, f Facts) { c.Path += strings.Repeat("x", 1<<20) })},
	"a million rows":       {forge: manyRows(millions)},

	"a row less than reported": {report: func(s *firnpb.TaskStatus) { s.Files, s.Outputs[0].Rows = 2, 2 }},
	"a million reported":       {report: func(s *firnpb.TaskStatus) { s.Files, s.Outputs[0].Rows = millions, millions }},
	"rows that aren't there":   {report: func(s *firnpb.TaskStatus) { s.RowsOut = absurd }},
	"no output":                {report: func(s *firnpb.TaskStatus) { s.Outputs = nil }},
	"a giant error": {report: func(s *firnpb.TaskStatus) {
		giant := strings.Repeat("giant ", giantText/6)
		s.State, s.Error = "failed", &firnpb.TaskError{Class: wire.ClassNotRetryable, Cause: giant, Object: giant, Hint: giant}
	}},

	"a manifest without end": {forge: manyRows(batch), report: func(s *firnpb.TaskStatus) { s.Files, s.Outputs[0].Rows = 1<<31, 1<<31 }, serve: endless},
	"rows instead":           {serve: otherRows},
	"no Arrow":               {serve: noArrow},
	"a length of exabytes":   {serve: lengths},
	"held back":              {serve: held},

	"statuses of others": {call: othersStatuses, report: gaveUp},
	"a flood":            {call: flood, report: gaveUp},
	"giant messages":     {call: giants, report: gaveUp},
	"keys of others":     {call: othersKeys, report: gaveUp},
	"forged tickets":     {call: tickets, report: gaveUp},
	"slow calls":         {call: slow, report: gaveUp},
	"stale":              {silent: true, call: forget},

	"a probe of other files": {probe: func(r plan.ProbeRequest) plan.ProbeResult {
		a := honestProbe(r)
		a.Sources[0].Files[0].Path = "/etc/passwd"
		return a
	}},
	"a probe of another table": {probe: func(r plan.ProbeRequest) plan.ProbeResult {
		a := honestProbe(r)
		s := &a.Sources[0]
		s.Kind, s.Table = plan.SourceTable, commit.TableName{Catalog: "lake", Namespace: []string{"air"}, Name: "other"}
		s.Files[0].Path = "file:///etc/passwd"
		return a
	}},
}

// gaveUp ends the job that the tasks are of.
func gaveUp(s *firnpb.TaskStatus) {
	s.State, s.Error = "failed", &firnpb.TaskError{Class: wire.ClassNotRetryable, Cause: "gave up"}
}

// honestProbe says that the first pattern is the only file.
func honestProbe(r plan.ProbeRequest) plan.ProbeResult {
	a := plan.ProbeResult{Sources: r.Sources, Columns: []plan.Column{{Name: "n", Type: "BIGINT"}, {Name: "s", Type: "VARCHAR"}}, RowWise: true, Deterministic: true}
	a.Sources[0].Columns = a.Columns
	a.Sources[0].Files = []plan.SourceFile{{Path: a.Sources[0].Patterns[0], Size: 100, Rows: 1}}
	return a
}

// manyRows names many files that may be there.
func manyRows(n int) func([]commit.File, Facts) []commit.File {
	return func(files []commit.File, _ Facts) []commit.File {
		dir, name := split(files[0].Path)
		all := make([]commit.File, n)
		for i := range all {
			all[i] = files[0]
			all[i].Path = fmt.Sprint(dir, i, "-", name)
		}
		return all
	}
}

// endless serves a batch again and again.
func endless(_ *executor, b arrow.RecordBatch, stream flight.FlightService_DoGetServer) error {
	w := flight.NewRecordWriter(stream, ipc.WithSchema(b.Schema()))
	for {
		if err := w.Write(b); err != nil {
			return err
		}
	}
}

// otherRows serves what isn't a manifest, and much of it.
func otherRows(e *executor, _ arrow.RecordBatch, stream flight.FlightService_DoGetServer) error {
	rows := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "x", Type: arrow.BinaryTypes.String}}, nil))
	defer rows.Release()
	rows.Field(0).(*array.StringBuilder).Append(strings.Repeat("x", giantText))
	return endless(e, rows.NewRecordBatch(), stream)
}

func noArrow(_ *executor, _ arrow.RecordBatch, stream flight.FlightService_DoGetServer) error {
	return stream.Send(&flight.FlightData{DataHeader: bytes.Repeat([]byte{0x7f}, 64), DataBody: make([]byte, 1<<20)})
}

// lengths serves the header of a batch with lengths of which nothing is there.
func lengths(_ *executor, b arrow.RecordBatch, stream flight.FlightService_DoGetServer) error {
	w := flight.NewRecordWriter(forger{stream}, ipc.WithSchema(b.Schema()))
	if err := w.Write(b); err != nil {
		return err
	}
	return w.Close()
}

// forger makes numbers that look like lengths in batches' headers huge.
type forger struct {
	flight.FlightService_DoGetServer
}

func (f forger) Send(d *flight.FlightData) error {
	if len(d.GetDataBody()) > 0 {
		h := bytes.Clone(d.GetDataHeader())
		for at := len(h) - 8; at >= len(h)/2; at -= 8 {
			binary.LittleEndian.PutUint64(h[at:], 1<<60)
		}
		d.DataHeader = h
	}
	return f.FlightService_DoGetServer.Send(d)
}

// held never sends anything.
func held(e *executor, _ arrow.RecordBatch, stream flight.FlightService_DoGetServer) error {
	select {
	case <-stream.Context().Done():
	case <-e.life.Done():
	}
	return nil
}

// othersStatuses ends the attempts of an honest executor in all ways there are.
func othersStatuses(e *executor, _ []task, f Facts) []string {
	var said []string
	for _, state := range []string{"succeeded", "failed", "cancelled", "running", "nonsense"} {
		st := &firnpb.TaskStatus{JobId: f.Job, AttemptId: f.Attempt, State: state, Outputs: []*firnpb.TaskOutput{{}}}
		if state == "failed" {
			st.Error = &firnpb.TaskError{Class: wire.ClassNotRetryable, Cause: "not its own", LostInput: &firnpb.LostInput{AttemptId: f.Attempt, ExecutorId: id}}
		}
		said = append(said, e.report(st))
	}
	return said
}

// othersKeys asks for the keys of jobs that it doesn't run.
func othersKeys(e *executor, _ []task, f Facts) []string {
	var all []string
	for _, job := range []string{f.Job, "", "j-none"} {
		for _, name := range []string{"w0", "r0", ""} {
			r, err := e.sched.StoreKeys(e.life, &firnpb.StoreKeysRequest{ExecutorId: id, Incarnation: e.incarnation, JobId: job, Credential: name})
			if err == nil {
				all = append(all, "KEYS "+r.GetAccessKeyId())
				continue
			}
			all = append(all, said(err))
		}
	}
	return all
}

// flood registers more than there may be, and asks for work without end.
func flood(e *executor, _ []task, _ Facts) []string {
	refused := ""
	for i := 0; refused == "" && i < 10_000; i++ {
		_, err := e.sched.Register(e.life, &firnpb.RegisterRequest{
			ProtocolVersion: wire.ProtocolVersion, ExecutorId: fmt.Sprint("flood-", i), Incarnation: "i", ControlAddress: "127.0.0.1:1", FlightAddress: "127.0.0.1:1", Slots: 1,
		})
		if err != nil {
			refused = said(err)
		}
	}
	// They leave again, or they would be given tasks.
	for i := range 5000 {
		_, _ = e.sched.Heartbeat(e.life, &firnpb.HeartbeatRequest{ExecutorId: fmt.Sprint("flood-", i), Incarnation: "i", Left: true})
	}
	return []string{refused}
}

// giants sends what is too large, one after the other and many at a time.
func giants(e *executor, held []task, _ Facts) []string {
	var all []string
	_, err := e.sched.Register(e.life, &firnpb.RegisterRequest{
		ProtocolVersion: wire.ProtocolVersion, ExecutorId: strings.Repeat("e", giantText), Incarnation: "i", ControlAddress: "a", FlightAddress: "a", Slots: 1,
	})
	all = append(all, said(err))
	_, err = e.sched.Heartbeat(e.life, &firnpb.HeartbeatRequest{ExecutorId: id, Incarnation: e.incarnation, RunningAttempts: make([]string, millions)})
	all = append(all, said(err))
	st := status(held[0].def)
	st.State, st.ManifestIpc = "running", make([]byte, wire.MaxRequest)
	all = append(all, e.report(st))
	st.ManifestIpc = make([]byte, giantText)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() { e.report(st) })
	}
	wg.Wait()
	return all
}

// slow opens calls and sends nothing, or half a message.
func slow(e *executor, _ []task, _ Facts) []string {
	for range 200 {
		s, err := e.conn.NewStream(e.life, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, firnpb.SchedulerService_ReportStatus_FullMethodName)
		if err != nil {
			return []string{said(err)}
		}
		_ = s // it stays open until the process ends
	}
	return nil
}

// forget lets its attempts be given to others, by heartbeats that don't list them.
func forget(e *executor, held []task, _ Facts) []string {
	e.mu.Lock()
	clear(e.running)
	e.mu.Unlock()
	return nil
}

// tickets reads from an honest executor, and gives it orders, with tickets that the
// scheduler never signed for that.
func tickets(e *executor, _ []task, f Facts) []string {
	_, forged, err := ed25519.GenerateKey(nil)
	if err != nil {
		return []string{err.Error()}
	}
	signer := wire.NewSigner(forged)
	soon := time.Now().Add(time.Hour).UnixMilli()
	conn, err := grpc.NewClient("passthrough:///"+f.Honest, wire.DialOptions()...)
	if err != nil {
		return []string{err.Error()}
	}
	defer conn.Close() //nolint:errcheck // the process ends soon
	c := flight.NewFlightServiceClient(conn)
	var all []string
	for _, raw := range [][]byte{
		nil, []byte("x"), bytes.Repeat([]byte("x"), 1<<20),
		signer.Sign(&firnpb.Ticket{Purpose: wire.PurposeRead, JobId: f.Job, AttemptId: f.Attempt, ExpiresUnixMs: soon}),
		signer.Sign(&firnpb.Ticket{Purpose: wire.PurposeUpload, JobId: "../../x", ExpiresUnixMs: soon}),
	} {
		s, err := c.DoGet(e.life, &flight.Ticket{Ticket: raw})
		if err == nil {
			_, err = s.Recv()
		}
		all = append(all, said(err))
	}
	// Its own, which the scheduler showed to it, shown to another executor.
	e.mu.Lock()
	own := e.control
	e.mu.Unlock()
	for _, control := range []string{"", own[0], string(signer.Sign(&firnpb.Ticket{Purpose: wire.PurposeControl, ExpiresUnixMs: soon}))} {
		ctx := metadata.AppendToOutgoingContext(e.life, controlHeader, control)
		_, err = firnpb.NewExecutorServiceClient(conn).FreeJobData(ctx, &firnpb.FreeJobDataRequest{JobId: f.Job})
		all = append(all, said(err))
		s, err := c.DoGet(e.life, &flight.Ticket{Ticket: []byte(control)})
		if err == nil {
			_, err = s.Recv()
		}
		all = append(all, said(err))
	}
	return all
}
