// Package cleanup deletes files that no table can have, and no others. It is the
// only package that deletes data files.
package cleanup
