// Package objstore reaches files on local disk and in S3-compatible object
// stores by one contract, with put-if-absent as its only conditional write.
// It takes credentials from its configuration and never from the environment of
// a catalog.
package objstore
