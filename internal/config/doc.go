// Package config is what the processes of Firn are told: the scheduler's file,
// FIRN_ variables and flags. An executor has flags and variables only, and
// nothing about catalogs: a test of the package's types says so.
//
// Precedence: flag, then variable, then file, then default. Keys of the file that
// nobody knows are errors that name the nearest known one, since a misspelt limit
// must not be a limit that isn't there. Files are never merged with each other.
package config
