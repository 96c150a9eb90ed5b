package iceberg

import (
	"math"
	"strings"
	"testing"

	"github.com/apache/iceberg-go"

	"github.com/firn-project/firn/commit"
)

// The tests here are what went wrong in other systems, by the numbers of
// docs/explanation/proven.md.

// A manifest whose lower bound is above its upper one.
func TestScenario63_SwappedBounds(t *testing.T) {
	schema := iceberg.NewSchema(0, column(1, "i", pt.Int32))
	f := commit.File{Rows: 2, Lower: map[int][]byte{1: le32(2)}, Upper: map[int][]byte{1: le32(1)}}
	if err := CheckBounds(schema, f); err == nil || !strings.Contains(err.Error(), "column i") {
		t.Errorf("swapped bounds: %v", err)
	}
	f.Lower, f.Upper = f.Upper, f.Lower
	if err := CheckBounds(schema, f); err != nil {
		t.Error(err)
	}
}

// Truncating the least number underflows.
func TestScenario64_TruncateUnderflow(t *testing.T) {
	if got, err := TransformValue(iceberg.TruncateTransform{Width: 10000}, pt.Int32, int32(math.MinInt32)); err == nil {
		t.Errorf("%v, which isn't below the least number", got)
	}
}

// The last microsecond before 1970 is in the year, month, day and hour before.
func TestScenario66_FloorBefore1970(t *testing.T) {
	for name, c := range map[string]struct {
		transform iceberg.Transform
		want      any
	}{
		"year":  {iceberg.YearTransform{}, int32(-1)},
		"month": {iceberg.MonthTransform{}, int32(-1)},
		"day":   {iceberg.DayTransform{}, iceberg.Date(-1)},
		"hour":  {iceberg.HourTransform{}, int32(-1)},
	} {
		got, err := TransformValue(c.transform, pt.Timestamp, micros("1969-12-31T23:59:59.999999"))
		if err != nil || got != c.want {
			t.Errorf("%s: %v, %v, want %v", name, got, err, c.want)
		}
	}
}

// The upper bound of timestamps is exact to the microsecond.
func TestScenario67_BoundsOfMicroseconds(t *testing.T) {
	last := micros("2024-02-29T12:00:00.123999")
	raw, err := EncodeValue(pt.Timestamp, last)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeValue(pt.Timestamp, raw)
	if err != nil || got != last {
		t.Errorf("%v, %v, want %v", got, err, last)
	}
}

// NaNs are counted apart and are never bounds.
func TestScenario68_NaNs(t *testing.T) {
	schema := iceberg.NewSchema(0, column(3, "f", pt.Float64))
	f := commit.File{
		Rows: 2, ValueCounts: map[int]int64{3: 2}, NullCounts: map[int]int64{3: 0}, NaNCounts: map[int]int64{3: 1},
		Lower: map[int][]byte{3: le64(0)}, Upper: map[int][]byte{3: le64(0)},
	}
	if err := CheckBounds(schema, f); err != nil {
		t.Errorf("one NaN beside a value: %v", err)
	}
	f.Upper[3] = le64(canonicalNaN)
	if err := CheckBounds(schema, f); err == nil {
		t.Error("a NaN is a bound")
	}
}

// A partition value that the data contradicts.
func TestScenario70_PartitionThatLies(t *testing.T) {
	TestCheckPartition(t)
}
