package delta

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/firn-project/firn/commit"
)

// A file manifest's row says what Delta's add needs in this way: partition values
// are those of the partition columns in their order, with field ids from 1, and
// their bytes are the text that partitionValues has. Null counts and bounds are by
// the number, from 1, of the leaf among FileLeaves; the bytes of a bound are its
// JSON. The ids of schema and partition spec are SchemaID and PartitionID.

// FileLeaves are the leaves that statistics of a file are numbered by: the
// schema's without those of partition columns.
func FileLeaves(schema *Struct, partition []string) []Leaf {
	return slices.DeleteFunc(Leaves(schema), func(l Leaf) bool { return slices.Contains(partition, l.Path[0]) })
}

// CheckPartition says whether a file has partition values that the table may have.
func CheckPartition(schema *Struct, partition []string, f commit.File) error {
	if len(f.Partition) != len(partition) {
		return fmt.Errorf("%d partition values for %d columns", len(f.Partition), len(partition))
	}
	for i, p := range f.Partition {
		c := schema.Column(partition[i])
		switch {
		case p.FieldID != i+1:
			return fmt.Errorf("partition value %d has the field id %d", i+1, p.FieldID)
		case c == nil:
			return fmt.Errorf("the partition column %.200q is gone", partition[i])
		case p.Null || len(p.Value) == 0:
			if !c.Nullable {
				return fmt.Errorf("the partition column %.200q may not be null", c.Name)
			}
			continue
		}
		text := string(p.Value)
		if _, err := DecodePartitionValue(c.Type, &text); err != nil {
			return fmt.Errorf("column %.200q: %w", c.Name, err)
		}
	}
	return nil
}

// FileStats are the statistics that a manifest has of a file. What can't be true
// of any file is an error: counts out of range, bounds that are no values of the
// type or that are swapped, columns that there aren't, nulls where none may be.
func FileStats(schema *Struct, partition []string, f commit.File) (Stats, error) {
	s := Stats{Rows: f.Rows}
	if f.Rows == 0 {
		return s, errors.New("it has no rows, and no such file is committed")
	}
	leaves := FileLeaves(schema, partition)
	for id, n := range f.NullCounts {
		if id < 1 || id > len(leaves) || n < 0 || n > f.Rows {
			return s, fmt.Errorf("%d nulls in column %d of %d", n, id, len(leaves))
		}
	}
	for i, l := range leaves {
		c := ColumnStats{Path: l.Path, Type: l.Type, Nulls: -1}
		if n, ok := f.NullCounts[i+1]; ok {
			c.Nulls = n
		}
		if c.Nulls > 0 && solid(schema, l.Path) {
			return s, fmt.Errorf("column %.200q: %d nulls in a column that may not be null", strings.Join(l.Path, "."), c.Nulls)
		}
		var err error
		if c.Min, err = boundOf(l, f.Lower[i+1]); err != nil {
			return s, err
		}
		if c.Max, err = boundOf(l, f.Upper[i+1]); err != nil {
			return s, err
		}
		if order, ok := Compare(c.Min, c.Max); ok && order > 0 {
			return s, fmt.Errorf("column %.200q: the lower bound is above the upper one", strings.Join(l.Path, "."))
		}
		if c.Nulls >= 0 || c.Min != nil || c.Max != nil {
			s.Columns = append(s.Columns, c)
		}
	}
	for _, bounds := range []map[int][]byte{f.Lower, f.Upper} {
		for id := range bounds {
			if id < 1 || id > len(leaves) {
				return s, fmt.Errorf("bounds of column %d of %d", id, len(leaves))
			}
		}
	}
	return s, nil
}

// solid says whether a leaf can't be null: neither it nor a struct around it may be.
func solid(s *Struct, path []string) bool {
	for i, name := range path {
		f := s.Column(name)
		if f == nil || f.Nullable {
			return false
		}
		if i < len(path)-1 {
			s = f.Type.(*Struct) //nolint:forcetypeassert // a leaf's path goes through structs
		}
	}
	return true
}

func boundOf(l Leaf, raw []byte) (any, error) {
	if raw == nil {
		return nil, nil
	}
	v, err := ParseBound(json.RawMessage(raw), l.Type)
	if err != nil {
		return nil, fmt.Errorf("column %.200q: %w", strings.Join(l.Path, "."), err)
	}
	return v, nil
}

// ParsePartition reads partition columns as a plan has them: a JSON list of names.
func ParsePartition(raw []byte) ([]string, error) {
	var names []string
	if err := json.Unmarshal(raw, &names); err != nil {
		return nil, fmt.Errorf("partition columns: %w", err)
	}
	return names, nil
}

// SchemaID stands for a schema, by its text. Delta's have no numbers; equal text
// has an equal id, in any process.
func SchemaID(schema string) int { return hashID("schema", schema) }

// PartitionID stands for a table's partition columns.
func PartitionID(columns []string) int { return hashID(append([]string{"partition"}, columns...)...) }

func hashID(parts ...string) int {
	h := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return int(binary.BigEndian.Uint32(h[:]) >> 1)
}
