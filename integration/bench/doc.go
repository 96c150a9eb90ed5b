// Package bench compares the speed of the main job with others on the same rows
// in the same run.
package bench
