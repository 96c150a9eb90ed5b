package journal

import "syscall"

// FailNext lets the next n transactions find the disk full. The function that it
// returns tells how many of those faults are left.
func FailNext(j *SQLite, n int) func() int {
	j.fault = func() error {
		if n == 0 {
			return nil
		}
		n--
		return syscall.ENOSPC
	}
	return func() int { return n }
}
