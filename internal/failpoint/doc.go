// Package failpoint names the moments right before and right after each durable
// effect, at which tests kill a process.
//
// Only a binary built with the tag failpoint can be killed: in all others Hit is
// empty and costs nothing. There $FIRN_FAILPOINT says where, as POINT or POINT:N
// for the Nth time that the process gets there, and $FIRN_FAILPOINT_MARK names a
// file that is made right before, as proof that it did. The kill is a SIGKILL to
// itself: nothing is flushed, closed or told.
//
// In such a binary files in the directory $FIRN_FAILPOINT_HOLDS also make an executor's
// disk slow, or cut it off from other executors, for as long as they are there.
package failpoint
