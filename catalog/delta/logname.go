package delta

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// logFile is one file of a log that a name was understood of.
type logFile struct {
	name    string
	version int64
	kind    logKind
	// part and parts are of a multi-part checkpoint, from 1.
	part, parts int
	size        int64
}

type logKind int

const (
	kindCommit logKind = iota
	// kindClassic is one Parquet file. It may be of version 2 inside.
	kindClassic
	kindMultiPart
	// kindV2 has a UUID in its name and is Parquet or JSON.
	kindV2
)

const (
	logDir        = "_delta_log"
	sidecarDir    = "_sidecars"
	hintName      = "_last_checkpoint"
	commitSuffix  = ".json"
	versionDigits = 20
	parquetSuffix = ".parquet"
)

// commitName is the name of a version's commit.
func commitName(version int64) string { return fmt.Sprintf("%020d%s", version, commitSuffix) }

// checkpointName is the name of a version's classic checkpoint.
func checkpointName(version int64) string { return fmt.Sprintf("%020d.checkpoint.parquet", version) }

// parseLogName reads the name of a commit or a checkpoint; ok is false for
// everything else that lies in a log: checksums, compacted commits, temporary
// files of other writers.
func parseLogName(name string) (f logFile, ok bool) {
	f.name = name
	digits, rest, found := strings.Cut(name, ".")
	if !found || len(digits) != versionDigits || strings.Trim(digits, "0123456789") != "" {
		return f, false
	}
	v, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return f, false
	}
	f.version = v
	parts := strings.Split(rest, ".")
	switch {
	case rest == "json":
		f.kind = kindCommit
		return f, true
	case rest == "checkpoint.parquet":
		f.kind = kindClassic
		return f, true
	case parts[0] != "checkpoint":
		return f, false
	case len(parts) == 4 && parts[3] == "parquet":
		f.kind = kindMultiPart
		part, ok1 := tenDigits(parts[1])
		of, ok2 := tenDigits(parts[2])
		f.part, f.parts = part, of
		return f, ok1 && ok2 && part >= 1 && part <= of
	case len(parts) == 3 && (parts[2] == "parquet" || parts[2] == "json"):
		f.kind = kindV2
		_, err := uuid.Parse(parts[1])
		return f, err == nil && len(parts[1]) == 36
	}
	return f, false
}

func tenDigits(s string) (int, bool) {
	if len(s) != 10 || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}

// blockDigits of a version are the same for a thousand versions, so that a store
// that can only list by prefix lists from a version on by few requests.
const (
	blockDigits = versionDigits - 3
	blockSize   = 1000
)

func blockPrefix(version int64) string { return fmt.Sprintf("%020d", version)[:blockDigits] }
