package iceberg

import (
	"errors"
	"fmt"
	"math"

	"github.com/apache/iceberg-go"

	"github.com/firn-project/firn/commit"
)

// CheckBounds checks the counts and bounds of an untrusted data file against
// the schema that it was written with: every column is one of the schema, every
// bound is a value of its column's type, in that type's own form, and no NaN, lower isn't above upper,
// counts aren't negative or larger than what they count, and a column that may not
// be null counts no nulls. Wrong bounds make
// readers skip rows, silently, so that a file with any is refused whole.
func CheckBounds(schema *iceberg.Schema, f commit.File) error {
	types := map[int]leaf{}
	for _, l := range leaves(schema.Fields()) {
		types[l.ID] = l
	}
	for name, counts := range map[string]map[int]int64{
		"size": f.ColumnSizes, "value count": f.ValueCounts, "null count": f.NullCounts, "NaN count": f.NaNCounts,
	} {
		for id, n := range counts {
			if _, ok := types[id]; !ok {
				return fmt.Errorf("%s of field %d, which the schema doesn't have", name, id)
			}
			if n < 0 {
				return fmt.Errorf("column %s: %s of %d", types[id].path, name, n)
			}
		}
	}
	for id, l := range types {
		if err := checkCounts(l, f); err != nil {
			return fmt.Errorf("column %s: %w", types[id].path, err)
		}
	}
	for _, bounds := range []map[int][]byte{f.Lower, f.Upper} {
		for id, b := range bounds {
			l, ok := types[id]
			if !ok {
				return fmt.Errorf("a bound of field %d, which the schema doesn't have", id)
			}
			if _, err := decodeBound(l.Type, b); err != nil {
				return fmt.Errorf("column %s: %w", l.path, err)
			}
		}
	}
	for id, lower := range f.Lower {
		upper, ok := f.Upper[id]
		if !ok {
			continue
		}
		if err := ordered(types[id].Type, lower, upper); err != nil {
			return fmt.Errorf("column %s: %w", types[id].path, err)
		}
	}
	return nil
}

func checkCounts(l leaf, f commit.File) error {
	values, counted := f.ValueCounts[l.ID]
	nulls, nans := f.NullCounts[l.ID], f.NaNCounts[l.ID]
	switch {
	case counted && !l.repeated && values != f.Rows:
		return fmt.Errorf("%d values in %d rows", values, f.Rows)
	case counted && nulls+nans > values:
		return fmt.Errorf("%d nulls and %d NaNs among %d values", nulls, nans, values)
	case !counted && !l.repeated && nulls+nans > f.Rows:
		return fmt.Errorf("%d nulls and %d NaNs in %d rows", nulls, nans, f.Rows)
	case nulls > 0 && l.solid:
		return fmt.Errorf("%d nulls in a column that may not be null", nulls)
	case nans > 0 && !isFloat(l.Type):
		return fmt.Errorf("NaNs in a %s", l.Type)
	}
	return nil
}

// decodeWritten is DecodeValue for a file that was written with the schema at hand:
// what is shorter, as of before a promotion, is refused, as there are readers that
// fail on it.
func decodeWritten(t iceberg.Type, b []byte) (any, error) {
	switch t.(type) {
	case iceberg.Int64Type, iceberg.Float64Type:
		if len(b) != 8 {
			return nil, fmt.Errorf("%d bytes aren't a value of %s, it has 8", len(b), t)
		}
	}
	return DecodeValue(t, b)
}

func decodeBound(t iceberg.Type, b []byte) (any, error) {
	v, err := decodeWritten(t, b)
	if err != nil {
		return nil, err
	}
	if isNaN(v) {
		return nil, errors.New("a bound is NaN")
	}
	return v, nil
}

func isNaN(v any) bool {
	switch v := v.(type) {
	case float32:
		return v != v
	case float64:
		return math.IsNaN(v)
	}
	return false
}

func ordered(t iceberg.Type, lower, upper []byte) error {
	lo, err := decodeBound(t, lower)
	if err != nil {
		return err
	}
	hi, err := decodeBound(t, upper)
	if err != nil {
		return err
	}
	if n, err := CompareValues(lo, hi); err != nil || n > 0 {
		return fmt.Errorf("the lower bound %v is above the upper bound %v", lo, hi)
	}
	return nil
}

// CheckPartition checks an untrusted data file's partition tuple: it has the
// spec's fields and values of their types, and it agrees with the counts and
// bounds of the source columns as far as these decide. A transform that keeps
// the order must give the same value for every value between the bounds; a
// bucket is recomputed when both bounds are the same value.
//
// It doesn't check the bounds themselves: call CheckBounds first.
func CheckPartition(schema *iceberg.Schema, spec iceberg.PartitionSpec, f commit.File) error {
	if f.SpecID != spec.ID() {
		return fmt.Errorf("the file was written with partition spec %d, not %d", f.SpecID, spec.ID())
	}
	if len(f.Partition) != spec.NumFields() {
		return fmt.Errorf("%d partition values for a spec of %d fields", len(f.Partition), spec.NumFields())
	}
	for i, v := range f.Partition {
		b, err := bindField(schema, spec.Field(i))
		if err != nil {
			return err
		}
		if v.FieldID != b.FieldID {
			return fmt.Errorf("partition value %d is of field %d, the spec has %d there", i, v.FieldID, b.FieldID)
		}
		if err := checkValue(b, v, f); err != nil {
			return fmt.Errorf("partition field %s: %w", b.Name, err)
		}
	}
	return nil
}

func checkValue(b boundField, v commit.PartitionValue, f commit.File) error {
	id := b.SourceID()
	nulls, counted := f.NullCounts[id]
	_, hasBounds := f.Lower[id]
	if v.Null {
		switch {
		case b.Path == nil: // void: null whatever the column holds
		case counted && nulls != f.Rows:
			return fmt.Errorf("null, but only %d of %d rows are", nulls, f.Rows)
		case hasBounds:
			return errors.New("null, but the column has bounds")
		}
		return nil
	}
	if b.Path == nil {
		return errors.New("a void field holds a value")
	}
	if counted && nulls > 0 {
		return fmt.Errorf("not null, but %d rows are", nulls)
	}
	value, err := decodeWritten(b.Result, v.Value)
	if err != nil {
		return err
	}
	if bucket, ok := b.Transform.(iceberg.BucketTransform); ok {
		if n := value.(int32); n < 0 || int(n) >= bucket.NumBuckets {
			return fmt.Errorf("bucket %d of %d", n, bucket.NumBuckets)
		}
	}
	if isNaN(value) {
		if nans, ok := f.NaNCounts[id]; hasBounds || ok && nans != f.Rows {
			return errors.New("NaN, but not all rows are")
		}
		return nil
	}
	return checkAgainstBounds(b, value, f)
}

func checkAgainstBounds(b boundField, value any, f commit.File) error {
	lower, hasLower := f.Lower[b.SourceID()]
	upper, hasUpper := f.Upper[b.SourceID()]
	if !b.Transform.PreservesOrder() {
		if !hasLower || !hasUpper || string(lower) != string(upper) || cuttable(b.Source) {
			return nil
		}
		got, err := transformBound(b, lower)
		if err != nil {
			return err
		}
		if n, err := CompareValues(got, value); err != nil || n != 0 {
			return fmt.Errorf("%v, but the column's values give %v", value, got)
		}
		return nil
	}
	if hasLower {
		if err := checkSide(b, value, lower, 1); err != nil {
			return err
		}
	}
	if hasUpper {
		return checkSide(b, value, upper, -1)
	}
	return nil
}

// checkSide compares the value with what a bound gives. Bounds of most types
// are values that occur, so that they give the value itself; those of strings
// and binaries may have been cut and lie on one side, as do those of zero.
func checkSide(b boundField, value any, bound []byte, side int) error {
	got, err := transformBound(b, bound)
	if err != nil {
		return err
	}
	n, err := CompareValues(got, value)
	if err != nil {
		return err
	}
	if n == 0 || n != side && (cuttable(b.Source) || isFloat(b.Source) && isZero(got) && isZero(value)) {
		return nil
	}
	return fmt.Errorf("%v, but a bound of the column gives %v", value, got)
}

func transformBound(b boundField, bound []byte) (any, error) {
	v, err := DecodeValue(b.Source, bound)
	if err != nil {
		return nil, err
	}
	return TransformValue(b.Transform, b.Source, v)
}

// cuttable says whether bounds of the type may be cut to a length.
func cuttable(t iceberg.Type) bool {
	switch t.(type) {
	case iceberg.StringType, iceberg.BinaryType:
		return true
	}
	return false
}

func isZero(v any) bool {
	switch v := v.(type) {
	case float32:
		return v == 0
	case float64:
		return v == 0
	}
	return false
}
