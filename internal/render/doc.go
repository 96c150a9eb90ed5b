// Package render writes rows for people and programs: as an aligned table, JSON,
// JSON lines and CSV. What it writes is an interface that scripts depend on:
//
//   - Integers that a double can't hold exactly, beyond ±2^53, are strings in JSON.
//     So are decimals of more than 15 digits; JSON readers would round both
//     silently.
//   - NaN, Infinity and -Infinity are strings, since JSON has no numbers for them.
//   - Dates are 2001-07-31, times 13:00:00.5, timestamps without a zone
//     2001-07-31T13:00:00.5, with one 2001-07-31T13:00:00.5Z, always UTC.
//   - Binary values are base64, UUIDs text.
//   - Lists are arrays, structs objects, maps objects when their keys are text and
//     else arrays of {"key","value"}.
//   - A column whose name another column has already becomes name_1, name_2, ….
//   - In CSV a NULL is an empty field and an empty text is "".
package render
