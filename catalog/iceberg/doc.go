// Package iceberg is the driver for Iceberg tables: it reads a table's metadata,
// builds commit requests with Firn's own producer on iceberg-go's low-level
// types, and plans scans.
//
// Nothing here retries, and nothing decides whether a commit landed: the commit
// machine does, from what Read shows. The library's Transaction is not used. It
// asserts neither schema nor spec, retries below us, merges its own idea of a
// fresh base into a request, and writes one unsplit manifest a commit.
//
// A catalog is seen through an Attachment. There are two kinds. In a pointer
// catalog (SQL) the driver writes the metadata file itself and the catalog swaps
// one pointer for another, from the very pointer that the metadata was read at:
// so what a request asserts is all of that metadata. In a REST catalog the
// request carries requirements and updates and the server writes the file.
package iceberg
