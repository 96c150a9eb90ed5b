// Package journal is the scheduler's durable record of jobs and of commit
// units.
//
// What is written before what is the commit protocol's business: a seal is
// durable before a unit can be sent, a send record before the send, an outcome
// before anybody is told. Every method that writes returns when the write is on
// disk.
//
// Journal is the contract. SQLite implements it, in a directory or in memory.
// Nothing in a journal is secret: units name tables and files, never
// credentials.
package journal
