// Package catalog opens the configured catalogs and their tables.
//
// It and the packages below it are the only ones that read catalog secrets, and
// only the scheduler's process links them. What they give to others holds none:
// a plan.Pinned carries storage settings by an allow-list, never a property of a
// catalog.
package catalog
