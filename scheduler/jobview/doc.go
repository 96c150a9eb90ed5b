// Package jobview is how jobs look in JSON: in answers of the REST interface, in
// its event streams, and in the event log, so that what was logged of an ended job
// is what was shown of it.
//
// Ids of 64 bits are strings, as readers of JSON cut long numbers; times are
// RFC 3339 in UTC.
package jobview
