// Package durable keeps files that are whole and on disk, under their names, or not
// there: a crash in between leaves the file that was there before.
package durable
