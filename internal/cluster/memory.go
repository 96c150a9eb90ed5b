package cluster

import (
	"os"
	"strconv"
	"strings"
)

// fallbackMemory is what a machine is taken to have when it doesn't say.
const fallbackMemory = 4 << 30

// DefaultMemory is half of the machine's memory, in bytes: what the executors
// of one machine share when nothing else is said. The other half is for Go's heap,
// the page cache and everybody else.
func DefaultMemory() int64 {
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return fallbackMemory / 2
	}
	for line := range strings.Lines(string(raw)) {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[0] == "MemTotal:" && fields[2] == "kB" {
			if kb, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
				return kb * 1024 / 2
			}
		}
	}
	return fallbackMemory / 2
}
