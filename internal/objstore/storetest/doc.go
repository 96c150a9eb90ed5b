// Package storetest is the conformance suite that every objstore.Store passes.
package storetest
