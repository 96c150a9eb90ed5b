package iceberg

import (
	"fmt"
	"math"

	"github.com/apache/iceberg-go"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/format/footer"
)

// handed is what a manifest says of a partition field.
type handed struct {
	said bool
	// value is nil for null.
	value any
}

func (h handed) null() bool { return h.said && h.value == nil }

// readHanded reads the text of a value.
func readHanded(b boundField, text *string, said bool) (handed, error) {
	h := handed{said: said}
	if text == nil {
		return h, nil
	}
	const hint = "Hand in the text that the page of the write protocol gives for the field's transform and type."
	var err error
	if h.value, err = ParsePartitionText(b.Transform, b.Result, *text); err != nil {
		return h, footer.Refuse(hint, "partition field %s: the manifest says %.80q: %v", b.Name, *text, err)
	}
	if bucket, ok := b.Transform.(iceberg.BucketTransform); ok {
		if n := h.value.(int32); n < 0 || int(n) >= bucket.NumBuckets {
			return h, footer.Refuse(hint, "partition field %s: the manifest says bucket %d of %d", b.Name, n, bucket.NumBuckets)
		}
	}
	if isNaN(h.value) { // all NaNs are one partition
		if _, single := h.value.(float32); single {
			h.value = float32(math.NaN())
		}
	}
	return h, nil
}

// derivePartition finds the value of one partition field that all rows of a file
// have, from the bounds and the nulls of its source column, and holds the value
// that was handed in against it. leaf is nil when the file doesn't have the column,
// which is null in all rows then.
func derivePartition(b boundField, leaf *footer.Leaf, rows int64, hand handed) (commit.PartitionValue, error) {
	null := commit.PartitionValue{FieldID: b.FieldID, Null: true}
	switch {
	case b.Path == nil, leaf == nil, leaf.Nulls == rows:
		if hand.value != nil {
			return null, disagree(b, hand.value, nil)
		}
		return null, nil
	case leaf.Nulls > 0:
		return null, footer.Refuse(footer.HintSplit, "partition field %s: the file spans two partitions: %d of its %d rows have null in %s, and the others haven't",
			b.Name, leaf.Nulls, rows, leaf.Path())
	case hand.null() && leaf.Nulls == 0:
		return null, disagreeText(b, "null", "something else: its column has no nulls")
	case hand.null() && (leaf.Min != nil || leaf.Max != nil):
		return null, disagreeText(b, "null", "something else: its column has bounds")
	case hand.null():
		return null, nil
	case leaf.Nulls < 0 && !hand.said:
		return null, footer.Refuse(footer.HintStatistics, "partition field %s: the file doesn't say how many nulls %s has", b.Name, leaf.Path())
	}
	value, err := oneValue(b, leaf, hand.value)
	if err != nil {
		return null, err
	}
	raw, err := EncodeValue(b.Result, value)
	return commit.PartitionValue{FieldID: b.FieldID, Value: raw}, err
}

// side is one bound of a source column, transformed.
type side struct {
	source, value any
	exact         bool
}

// oneValue is the partition value of a column without nulls. hand is nil when
// nothing was handed in.
func oneValue(b boundField, leaf *footer.Leaf, hand any) (any, error) {
	lo, err := transformSide(b, leaf, leaf.Min)
	if err != nil {
		return nil, err
	}
	hi, err := transformSide(b, leaf, leaf.Max)
	if err != nil {
		return nil, err
	}
	if isNaN(hand) {
		if lo != nil || hi != nil {
			return nil, disagreeText(b, "NaN", "something else: its column has bounds")
		}
		return hand, nil
	}
	// NaNs lie in no bounds, and the two zeros are two partitions.
	derivable := !isFloat(b.Source)
	if lo != nil && hi != nil {
		same := sameValue(lo.value, hi.value) || isZero(lo.value) && isZero(hi.value)
		single := same && (b.Transform.PreservesOrder() || footer.Compare(leaf.Min.Value, leaf.Max.Value) == 0)
		switch {
		case !same && lo.exact && hi.exact:
			return nil, footer.Refuse(footer.HintSplit, "partition field %s: the file spans two partitions: %s has %v, which gives %v, and %v, which gives %v",
				b.Name, leaf.Path(), lo.source, lo.value, hi.source, hi.value)
		case single && derivable:
			if hand != nil && !sameValue(hand, lo.value) {
				return nil, disagree(b, hand, lo.value)
			}
			return lo.value, nil
		}
	}
	if hand == nil {
		return nil, footer.Refuse(footer.HintStatistics, "partition field %s: the statistics of %s don't show that all rows have one value of %s",
			b.Name, leaf.Path(), b.Transform)
	}
	return hand, handFits(b, hand, lo, hi)
}

func transformSide(b boundField, leaf *footer.Leaf, bound *footer.Bound) (*side, error) {
	if bound == nil {
		return nil, nil
	}
	v := tableValue(b.Source, bound.Value)
	if v == nil {
		return nil, nil
	}
	t, err := TransformValue(b.Transform, b.Source, v)
	if err != nil {
		return nil, footer.Refuse("Leave the row out, or partition the table by another transform.", "partition field %s of %s: %v", b.Name, leaf.Path(), err)
	}
	return &side{source: v, value: t, exact: bound.Exact}, nil
}

// handFits holds a value that was handed in against the bounds that there are.
func handFits(b boundField, hand any, lo, hi *side) error {
	for i, s := range []*side{lo, hi} {
		if s == nil {
			continue
		}
		n, err := CompareValues(s.value, hand)
		if err != nil {
			return err
		}
		beyond := n > 0
		if i == 1 {
			beyond = n < 0
		}
		if !b.Transform.PreservesOrder() {
			beyond = false
		}
		if isZero(s.value) && isZero(hand) {
			continue
		}
		if beyond || s.exact && n != 0 {
			return disagree(b, hand, s.value)
		}
	}
	return nil
}

func sameValue(x, y any) bool {
	n, err := CompareValues(x, y)
	return err == nil && n == 0
}

func disagree(b boundField, hand, derived any) error {
	if derived == nil {
		return disagreeText(b, fmt.Sprint(hand), "null")
	}
	return disagreeText(b, fmt.Sprint(hand), fmt.Sprint(derived))
}

func disagreeText(b boundField, hand, derived string) error {
	return footer.Refuse("Hand in the partition that the rows have, or none to have it derived.",
		"partition field %s: the manifest says %s, and the file has %s", b.Name, hand, derived)
}
