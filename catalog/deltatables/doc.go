// Package deltatables finds Delta tables, by name or by path, and answers for them
// what statements ask of catalogs.
//
// A Delta table has no catalog. The names that Firn gives to tables are kept in
// Names, each in the namespace of an Iceberg catalog, so that a name stands for
// one table; package catalog sees to that. A table that is named by its path
// (delta.`/dir`) has the catalog part PathCatalog, no namespace, and the path for
// a name.
package deltatables
