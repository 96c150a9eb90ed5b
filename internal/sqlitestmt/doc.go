// Package sqlitestmt opens SQLite databases whose connections keep the statements
// that they have compiled. Compiling a small statement takes longer than running
// it, and database/sql has one compiled anew for every call that isn't made
// through a sql.Stmt, which in turn belongs to one transaction.
//
// A connection keeps at most maxKept statements, the ones that were used last.
// What SQLite does when a schema changes under a compiled statement, compile it
// again, it does for these too.
package sqlitestmt
