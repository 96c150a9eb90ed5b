package engine

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/firn-project/firn/format/delta"
	"github.com/firn-project/firn/internal/duckdb"
	"github.com/firn-project/firn/plan"
)

// deltaReader makes the queries that read the files of a Delta table.
type deltaReader struct {
	columns []deltaColumn
	// partition has, by column of the table, its place among the partition
	// columns, or -1.
	partition []int
	mapping   delta.Mapping
}

// deltaColumn is a column of the table.
type deltaColumn struct {
	delta.Field
	// duck is DuckDB's type of the column, filed that of what files hold, which has
	// the physical names of nested fields.
	duck, filed string
	// physical is the column's name in files.
	physical string
}

func newDeltaReader(src plan.Source) (*deltaReader, error) {
	s, err := delta.ParseSchema(string(src.Delta.SchemaJSON))
	if err != nil {
		return nil, err
	}
	r := &deltaReader{}
	if r.mapping, err = delta.MappingOf(map[string]string{delta.PropertyMapping: src.Delta.Mapping}); err != nil {
		return nil, err
	}
	physical, err := s.Physical(r.mapping)
	if err != nil {
		return nil, err
	}
	for i, f := range s.Fields {
		c := deltaColumn{Field: f, physical: physical.Fields[i].Name}
		if c.duck, err = delta.ReadType(f.Type); err != nil {
			return nil, err
		}
		if c.filed, err = delta.ReadType(physical.Fields[i].Type); err != nil {
			return nil, err
		}
		r.columns = append(r.columns, c)
		r.partition = append(r.partition, slices.IndexFunc(src.Delta.Partition, func(p string) bool { return strings.EqualFold(p, f.Name) }))
	}
	return r, nil
}

// deltaQuery reads the files of a Delta table at its pinned version.
//
// Columns are found by their physical names, or by field ids where the table maps
// them so; a column that a file lacks is null, and a type that was widened is cast.
// Partition columns are constants of each file. Rows that a deletion vector
// deletes are left out by their numbers.
func (s *session) deltaQuery(ctx context.Context, src plan.Source, in []input) (string, error) {
	r, err := newDeltaReader(src)
	if err != nil {
		return "", badFile(strings.Join(src.View, "."), err.Error())
	}
	var parts []string
	for len(in) > 0 {
		odd, err := s.zoneless(ctx, r, in[0])
		if err != nil {
			return "", err
		}
		n := 1
		if in[0].Vector == nil && len(odd) == 0 {
			for n < len(in) && in[n].Vector == nil && slices.EqualFunc(in[0].Partition, in[n].Partition, sameText) {
				if odd, err := s.zoneless(ctx, r, in[n]); err != nil {
					return "", err
				} else if len(odd) > 0 {
					break
				}
				n++
			}
		}
		q, err := s.deltaFiles(ctx, src, r, in[:n], odd)
		if err != nil {
			return "", err
		}
		parts, in = append(parts, q), in[n:]
	}
	return strings.Join(parts, " UNION ALL "), nil
}

func sameText(a, b *string) bool { return a == b || a != nil && b != nil && *a == *b }

// deltaFiles reads files that have the same partition values; one with a vector, or
// with odd columns, stands alone.
func (s *session) deltaFiles(ctx context.Context, src plan.Source, r *deltaReader, in []input, odd map[string]bool) (string, error) {
	var from, where string
	// bySchema: the columns come by the table's names, with its types.
	bySchema := in[0].Vector == nil && len(odd) == 0 && slices.Contains(r.partition, -1)
	// found has the names of columns in the file.
	var found map[string]string
	if bySchema {
		from = r.bySchema(in)
	} else {
		opts := map[string]string{"hive_partitioning": "false", rowNumber: "true"}
		from = call("read_parquet", in, opts)
		var err error
		if found, err = s.columnsOf(ctx, r, in[0]); err != nil {
			return "", err
		}
		if v := in[0].Vector; v != nil {
			table, err := s.deleted(ctx, src, in[0].Path, v)
			if err != nil {
				return "", err
			}
			where = fmt.Sprintf(" WHERE NOT EXISTS (SELECT 1 FROM %s AS firn_v WHERE firn_v.pos = firn_d.%s)", table, rowNumber)
		}
	}
	list := make([]string, len(r.columns))
	for i, c := range r.columns {
		var value string
		var err error
		switch at := r.partition[i]; {
		case at >= 0 && at >= len(in[0].Partition):
			return "", badFile(in[0].Path, "the plan has no value of its partition column "+c.Name)
		case at >= 0:
			if value, err = constant(c.Type, in[0].Partition[at]); err != nil {
				return "", badFile(in[0].Path, "partition column "+c.Name+": "+err.Error())
			}
		case bySchema:
			value = r.value(c, duckdb.Ident(c.Name))
		case found[c.Name] != "":
			value = duckdb.Ident(found[c.Name])
			if odd[c.Name] {
				value += " AT TIME ZONE 'UTC'"
			}
			value = r.value(c, "CAST("+value+" AS "+c.filed+")")
		default:
			value = "NULL::" + c.duck
		}
		list[i] = value + " AS " + duckdb.Ident(c.Name)
	}
	return "SELECT " + strings.Join(list, ", ") + " FROM " + from + " AS firn_d" + where, nil
}

// bySchema is a read_parquet call that gives the columns by their names in the
// table, whatever the files call them.
func (r *deltaReader) bySchema(in []input) string {
	var entries []string
	for i, c := range r.columns {
		if r.partition[i] >= 0 {
			continue
		}
		key := duckdb.Quote(c.physical)
		if id, ok := c.FieldID(); ok && r.mapping == delta.MappingID {
			key = strconv.Itoa(int(id))
		}
		entries = append(entries, fmt.Sprintf("%s: {name: %s, type: %s, default_value: NULL::VARCHAR}", key, duckdb.Quote(c.Name), duckdb.Quote(c.filed)))
	}
	return call("read_parquet", in, map[string]string{"schema": "MAP {" + strings.Join(entries, ", ") + "}", "hive_partitioning": "false"})
}

// value is a column as the table has it, of one that has the file's names of nested
// fields. As in scanned, nothing is left through which DuckDB would push filters on
// floating-point numbers down to statistics without NaN.
func (r *deltaReader) value(c deltaColumn, of string) string {
	switch {
	case c.Type == delta.Float || c.Type == delta.Double:
		return fmt.Sprintf("%s - 0::%s", of, c.duck)
	case c.duck != c.filed:
		return renamedValue(c.Type, r.mapping, of, 0)
	case strings.Contains(c.duck, "STRUCT(") && (strings.Contains(c.duck, "FLOAT") || strings.Contains(c.duck, "DOUBLE")):
		return "[" + of + "][1]"
	}
	return of
}

// renamedValue gives the nested fields of a value the names that they have in the
// table.
func renamedValue(t delta.Type, m delta.Mapping, of string, depth int) string {
	each := fmt.Sprintf("firn_e%d", depth)
	switch t := t.(type) {
	case *delta.Struct:
		fields := make([]string, len(t.Fields))
		for i, f := range t.Fields {
			name, err := f.PhysicalName(m)
			if err != nil {
				name = f.Name // newDeltaReader has seen to it
			}
			fields[i] = duckdb.Ident(f.Name) + " := " + renamedValue(f.Type, m, "struct_extract("+of+", "+duckdb.Quote(name)+")", depth)
		}
		return "CASE WHEN " + of + " IS NULL THEN NULL ELSE struct_pack(" + strings.Join(fields, ", ") + ") END"
	case *delta.Array:
		if !nests(t.Element) {
			return of
		}
		return "list_transform(" + of + ", lambda " + each + ": " + renamedValue(t.Element, m, each, depth+1) + ")"
	case *delta.Map:
		if !nests(t.Key) && !nests(t.Value) {
			return of
		}
		return "map(list_transform(map_keys(" + of + "), lambda " + each + ": " + renamedValue(t.Key, m, each, depth+1) +
			"), list_transform(map_values(" + of + "), lambda " + each + ": " + renamedValue(t.Value, m, each, depth+1) + "))"
	}
	return of
}

// nests says whether a type has a struct in it.
func nests(t delta.Type) bool {
	switch t := t.(type) {
	case *delta.Struct:
		return true
	case *delta.Array:
		return nests(t.Element)
	case *delta.Map:
		return nests(t.Key) || nests(t.Value)
	}
	return false
}

// constant is a partition value in SQL.
func constant(t delta.Type, text *string) (string, error) {
	duck, err := delta.ReadType(t)
	if err != nil {
		return "", err
	}
	v, err := delta.DecodePartitionValue(t, text)
	if err != nil || v == nil {
		return "NULL::" + duck, err
	}
	switch t {
	case delta.String:
		return duckdb.Quote(*text), nil
	case delta.Date:
		return fmt.Sprintf("(DATE '1970-01-01' + (%d))", v), nil
	case delta.TimestampNTZ:
		return fmt.Sprintf("make_timestamp(%d)", v), nil
	case delta.Timestamp:
		return fmt.Sprintf("(make_timestamp(%d) AT TIME ZONE 'UTC')", v), nil
	case delta.Binary:
		return fmt.Sprintf("from_hex('%x')", v), nil
	}
	return "CAST('" + fmt.Sprint(v) + "' AS " + duck + ")", nil
}

// columnsOf gives, for each column of the table that a file has, its name there.
func (s *session) columnsOf(ctx context.Context, r *deltaReader, f input) (map[string]string, error) {
	root, err := s.parquetRoot(ctx, f)
	if err != nil {
		return nil, err
	}
	has := map[string]string{}
	for _, c := range r.columns {
		if at := slices.IndexFunc(childrenOf(root), func(n schema.Node) bool { return r.is(c, n) }); at >= 0 {
			has[c.Name] = root.Field(at).Name()
		}
	}
	return has, nil
}

// is says whether a field of a file is a column of the table.
func (r *deltaReader) is(c deltaColumn, n schema.Node) bool {
	if id, ok := c.FieldID(); ok && r.mapping == delta.MappingID {
		return n.FieldID() == id
	}
	return strings.EqualFold(n.Name(), c.physical)
}

func childrenOf(g *schema.GroupNode) []schema.Node {
	out := make([]schema.Node, g.NumFields())
	for i := range out {
		out[i] = g.Field(i)
	}
	return out
}

// zoneless finds the timestamps of a file that have a zone in the table and none in
// the file, or the other way round: those of old Spark versions, in 96 bits. DuckDB
// would take them to be in the session's zone.
func (s *session) zoneless(ctx context.Context, r *deltaReader, f input) (map[string]bool, error) {
	wants := func(c deltaColumn) bool { return c.Type == delta.Timestamp || c.Type == delta.TimestampNTZ }
	if !slices.ContainsFunc(r.columns, wants) {
		return nil, nil
	}
	root, err := s.parquetRoot(ctx, f)
	if err != nil {
		return nil, err
	}
	var odd map[string]bool
	for _, n := range childrenOf(root) {
		i := slices.IndexFunc(r.columns, func(c deltaColumn) bool { return wants(c) && r.is(c, n) })
		p, ok := n.(*schema.PrimitiveNode)
		if i < 0 || !ok {
			continue
		}
		logical, is := p.LogicalType().(schema.TimestampLogicalType)
		zoned := is && logical.IsAdjustedToUTC()
		if !is && p.PhysicalType() != parquet.Types.Int96 {
			continue // a date that was widened
		}
		if zoned != (r.columns[i].Type == delta.Timestamp) {
			if odd == nil {
				odd = map[string]bool{}
			}
			odd[r.columns[i].Name] = true
		}
	}
	return odd, nil
}
