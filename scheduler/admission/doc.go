// Package admission is the line in which jobs wait to be planned: how many are planned at
// a time, how many may wait, and who is next.
package admission
