package delta

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Names of table properties.
const (
	PropertyAppendOnly           = "delta.appendOnly"
	PropertyMapping              = "delta.columnMapping.mode"
	PropertyMaxColumnID          = "delta.columnMapping.maxColumnId"
	PropertyCheckpointInterval   = "delta.checkpointInterval"
	PropertyStatsAsJSON          = "delta.checkpoint.writeStatsAsJson"
	PropertyStatsAsStruct        = "delta.checkpoint.writeStatsAsStruct"
	PropertyInCommitTimestamps   = "delta.enableInCommitTimestamps"
	PropertyRowTrackingSuspended = "delta.rowTrackingSuspended"
	PropertyChangeDataFeed       = "delta.enableChangeDataFeed"
	PropertyDeletionVectors      = "delta.enableDeletionVectors"
	PropertyFileRetention        = "delta.deletedFileRetentionDuration"
	PropertyTxnRetention         = "delta.setTransactionRetentionDuration"
	PropertyIndexedColumns       = "delta.dataSkippingNumIndexedCols"
	PropertyStatsColumns         = "delta.dataSkippingStatsColumns"
	PropertyStringPrefix         = "delta.dataSkippingStringPrefixLength"
	PropertyTargetFileSize       = "delta.targetFileSize"
	PropertyCodec                = "delta.parquet.compression.codec"
	PropertyIsolation            = "delta.isolationLevel"

	prefixConstraints = "delta.constraints."
	prefixCoordinated = "delta.coordinatedCommits."
)

// DefaultCheckpointInterval is how many versions lie between two checkpoints of a
// table that doesn't say.
const DefaultCheckpointInterval = 10

// defaultFileRetention is how long tombstones of removed files are kept.
const defaultFileRetention = 7 * 24 * time.Hour

// Bool reads a property that is true or false; absent is the default.
func Bool(properties map[string]string, name string, def bool) (bool, error) {
	v, ok := properties[name]
	if !ok {
		return def, nil
	}
	switch strings.ToLower(strings.TrimSpace(v)) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return def, fmt.Errorf("%s is %.80q, neither true nor false", name, v)
}

// CheckpointInterval reads how often a table wants a checkpoint. What isn't a
// positive number gives the default: a checkpoint too often or too seldom does no
// harm, and a commit must not fail for it.
func CheckpointInterval(properties map[string]string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(properties[PropertyCheckpointInterval]), 10, 64)
	if err != nil || n < 1 {
		return DefaultCheckpointInterval
	}
	return n
}

// FileRetention is how long the table keeps tombstones of removed files.
func FileRetention(properties map[string]string) (time.Duration, error) {
	v, ok := properties[PropertyFileRetention]
	if !ok {
		return defaultFileRetention, nil
	}
	d, err := ParseInterval(v)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", PropertyFileRetention, err)
	}
	return d, nil
}

// TxnRetention is how long the table keeps txn actions; ok is false when it keeps
// them for ever, the default.
func TxnRetention(properties map[string]string) (d time.Duration, ok bool, err error) {
	v, ok := properties[PropertyTxnRetention]
	if !ok {
		return 0, false, nil
	}
	d, err = ParseInterval(v)
	if err != nil {
		return 0, false, fmt.Errorf("%s: %w", PropertyTxnRetention, err)
	}
	return d, true, nil
}

var intervalUnits = map[string]time.Duration{
	"week": 7 * 24 * time.Hour, "day": 24 * time.Hour, "hour": time.Hour, "minute": time.Minute, "second": time.Second,
	"millisecond": time.Millisecond, "microsecond": time.Microsecond,
}

// ParseInterval reads an interval as properties have it: "interval 1 week",
// "7 days 12 hours". Months and years, which have no length, are refused.
func ParseInterval(text string) (time.Duration, error) {
	words := strings.Fields(strings.ToLower(text))
	if len(words) > 0 && words[0] == "interval" {
		words = words[1:]
	}
	if len(words) == 0 || len(words)%2 != 0 || len(words) > 20 {
		return 0, fmt.Errorf("%.80q isn't an interval such as \"interval 1 week\"", text)
	}
	var total time.Duration
	for i := 0; i < len(words); i += 2 {
		n, err := strconv.ParseInt(words[i], 10, 64)
		unit, ok := intervalUnits[strings.TrimSuffix(words[i+1], "s")]
		const longest = 100 * 365 * 24 * time.Hour
		if err != nil || !ok || n < 0 || n > int64(longest/unit) {
			return 0, fmt.Errorf("%.80q isn't an interval of weeks, days, hours, minutes or seconds", text)
		}
		total += time.Duration(n) * unit
		if total > longest {
			return 0, fmt.Errorf("%.80q is longer than a hundred years", text)
		}
	}
	return total, nil
}
