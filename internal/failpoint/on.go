//go:build failpoint

package failpoint

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// armed is where the process dies, and left how often it still gets there.
var armed, left = func() (Point, *atomic.Int64) {
	name, n, _ := strings.Cut(os.Getenv("FIRN_FAILPOINT"), ":")
	left := &atomic.Int64{}
	left.Store(1)
	if n != "" {
		v, err := strconv.ParseInt(n, 10, 64)
		if err != nil || v < 1 {
			panic("FIRN_FAILPOINT: " + strconv.Quote(n) + " is no count")
		}
		left.Store(v)
	}
	if name != "" && !slices.Contains(slices.Concat(Scheduler, Writes), Point(name)) && !slices.Contains(Executor, Point(name)) {
		panic("FIRN_FAILPOINT: no point " + strconv.Quote(name))
	}
	return Point(name), left
}()

// Hit ends the process if this is where it is to die.
func Hit(p Point) {
	if p != armed || left.Add(-1) != 0 {
		return
	}
	if mark := os.Getenv("FIRN_FAILPOINT_MARK"); mark != "" {
		if err := os.WriteFile(mark, []byte(p), 0o600); err != nil {
			panic(err)
		}
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way
}

// HitIf is Hit for an effect that comes only sometimes.
func HitIf(is bool, p Point) {
	if is {
		Hit(p)
	}
}
