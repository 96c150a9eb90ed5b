// Package adoption says whether the files of one commit unit may be committed to
// another table than the one they were written for, and makes them files of it.
package adoption
