package wire

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/firn-project/firn/commit"
)

// reportField binds one column of a report to a field of commit.Report: exactly
// one of the pointers is set.
type reportField struct {
	name string
	str  *string
	i64  *int64
	num  *int
	flag *bool
}

// reportFields lists the plain columns of a report, in order. The table's name
// and the time of the commit have columns of their own after them.
func reportFields(r *commit.Report) []reportField {
	return []reportField{
		{name: "job_id", str: &r.JobID},
		{name: "idempotency_key", str: &r.Key},
		{name: "format", str: &r.Format},
		{name: "operation", str: (*string)(&r.Operation)},
		{name: "commit", str: (*string)(&r.State)},
		{name: "deduplicated", flag: &r.Deduplicated},
		{name: "rolled_back", flag: &r.RolledBack},
		{name: "other_submission", flag: &r.OtherSubmission},
		{name: "rows", i64: &r.Rows},
		{name: "files", i64: &r.Files},
		{name: "bytes", i64: &r.Bytes},
		{name: "snapshot_id", str: &r.SnapshotID},
		{name: "attempts", num: &r.Attempts},
		{name: "conflicts", num: &r.Conflicts},
	}
}

// ReportSchema is the schema of the one-row result of a job that commits.
// committed_at is null when nothing was committed; table_name has the parts of
// the name: catalog, namespace, table.
func ReportSchema() *arrow.Schema { return reportForm().schema }

var reportForm = sync.OnceValue(func() known {
	var fields []arrow.Field
	for _, f := range reportFields(new(commit.Report)) {
		t := arrow.PrimitiveTypes.Int64
		switch {
		case f.str != nil:
			t = arrow.BinaryTypes.String
		case f.flag != nil:
			t = arrow.FixedWidthTypes.Boolean
		}
		fields = append(fields, arrow.Field{Name: f.name, Type: t})
	}
	return newKnown(arrow.NewSchema(append(fields,
		arrow.Field{Name: "table", Type: arrow.BinaryTypes.String},
		arrow.Field{Name: "table_name", Type: arrow.ListOfNonNullable(arrow.BinaryTypes.String)},
		arrow.Field{Name: "committed_at", Type: arrow.FixedWidthTypes.Timestamp_us, Nullable: true},
	), nil))
})

// EncodeReport writes the report as an Arrow IPC stream of one row.
func EncodeReport(r commit.Report) ([]byte, error) {
	form := reportForm()
	b := array.NewRecordBuilder(memory.DefaultAllocator, form.schema)
	defer b.Release()
	fields := reportFields(&r)
	for i, f := range fields {
		switch {
		case f.str != nil:
			b.Field(i).(*array.StringBuilder).Append(*f.str)
		case f.flag != nil:
			b.Field(i).(*array.BooleanBuilder).Append(*f.flag)
		case f.num != nil:
			b.Field(i).(*array.Int64Builder).Append(int64(*f.num))
		default:
			b.Field(i).(*array.Int64Builder).Append(*f.i64)
		}
	}
	n := len(fields)
	b.Field(n).(*array.StringBuilder).Append(r.Table.String())
	parts := b.Field(n + 1).(*array.ListBuilder)
	parts.Append(true)
	if r.Table.Name != "" {
		parts.ValueBuilder().(*array.StringBuilder).AppendValues(tableParts(r.Table), nil)
	}
	at := b.Field(n + 2).(*array.TimestampBuilder)
	if r.CommittedAt.IsZero() {
		at.AppendNull()
	} else {
		at.Append(arrow.Timestamp(r.CommittedAt.UnixMicro()))
	}
	rec := b.NewRecordBatch()
	defer rec.Release()
	return form.encode(rec)
}

func tableParts(n commit.TableName) []string {
	return append(append([]string{n.Catalog}, n.Namespace...), n.Name)
}

// DecodeReport reads what EncodeReport wrote. Times come back in UTC with
// microseconds.
func DecodeReport(raw []byte) (r commit.Report, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("commit report: %v", p)
		}
	}()
	rd, err := NewIPCReader(raw)
	if err != nil {
		return r, fmt.Errorf("commit report: %w", err)
	}
	defer rd.Release()
	rec, err := rd.Read()
	if err != nil {
		return r, fmt.Errorf("commit report: %w", noEOF(err))
	}
	if !rec.Schema().Equal(ReportSchema()) || rec.NumRows() != 1 {
		return r, fmt.Errorf("commit report: want one row of %s, got %d of %s", ReportSchema(), rec.NumRows(), rec.Schema())
	}
	fields := reportFields(&r)
	for i, f := range fields {
		switch c := rec.Column(i).(type) {
		case *array.String:
			*f.str = strings.Clone(c.Value(0))
		case *array.Boolean:
			*f.flag = c.Value(0)
		case *array.Int64:
			if f.num != nil {
				*f.num = int(c.Value(0))
			} else {
				*f.i64 = c.Value(0)
			}
		}
	}
	n := len(fields)
	parts := rec.Column(n + 1).(*array.List)
	from, to := parts.ValueOffsets(0)
	var name []string
	for i := from; i < to; i++ {
		name = append(name, strings.Clone(parts.ListValues().(*array.String).Value(int(i))))
	}
	if len(name) > 0 {
		if len(name) < 2 {
			return r, errors.New("commit report: the table's name lacks parts")
		}
		r.Table = commit.TableName{Catalog: name[0], Namespace: name[1 : len(name)-1], Name: name[len(name)-1]}
	}
	if at := rec.Column(n + 2).(*array.Timestamp); at.IsValid(0) {
		r.CommittedAt = time.UnixMicro(int64(at.Value(0))).UTC()
	}
	return r, nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
