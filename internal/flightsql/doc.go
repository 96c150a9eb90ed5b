// Package flightsql is the client of Flight SQL engines whose queries are sources:
// what the scheduler asks (Engine.Execute, Renew, Cancel) and what executors read
// (Engine.Read).
//
// An engine is reached by an Access, which says where it is, what is shown to it,
// and to which other addresses its answers may lead. Nothing else is ever dialled,
// whatever a statement or an engine says.
//
// What an engine sends is untrusted: messages are bounded, Arrow's lengths are
// checked before memory is taken for them, and batches before DuckDB sees them.
// Columns of types that DuckDB has no room for are converted where nothing is lost
// by it, and refused by name elsewhere. What dictionaries, runs, views and nulls are
// written out to is bounded for all columns of a batch together.
package flightsql
