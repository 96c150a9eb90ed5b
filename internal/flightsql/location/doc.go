// Package location reads the addresses of Flight servers, and the patterns of those
// that are allowed.
package location
