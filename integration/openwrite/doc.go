// Package openwrite attacks the open write protocol with real files, real tables
// and the Go client: races of drivers, lost answers, files that change after they
// were handed in, tables that change meanwhile, and schedulers that are killed.
package openwrite
