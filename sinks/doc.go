// Package sinks writes Arrow batches as data files and describes each as a row
// of a file manifest.
//
// Writer is the portable part: it names files, spreads rows over the open files
// of their partitions, rolls files at the target size, keeps memory and open
// files bounded, and takes everything back when an attempt fails. A Driver
// knows one table format: how rows are cast to the table's schema, what
// partition they belong to, how a file is encoded and what its metrics are.
//
// Executors hold no catalog secret, so nothing here can reach a catalog.
package sinks
