// Package lazyfile makes local files whose contents come from elsewhere when they
// are read.
//
// DuckDB opens local files only: it has no hook for a file system, and the
// extension that reads object stores isn't linked. So an object is given to it as
// a sparse file of the object's size. DuckDB's reads of it are met at pread(2),
// the one call that it reads Parquet files with, and what isn't there yet is
// fetched first. DuckDB itself decides what it needs, by projection, filters on
// statistics, deletes and all, and nothing else is fetched.
//
// On Linux the package defines pread for the C code of the program. Files that
// aren't its own go straight to the kernel; its own are told by their sticky bit,
// which means nothing on a regular file. The Go runtime makes its own system
// calls, and isn't touched. Elsewhere a file is fetched whole when it's made.
package lazyfile
