package iceberg

import (
	"fmt"
	"strings"
)

// typesPage is the reference page of types, made from the table that the
// functions of this package use.
func typesPage() string {
	var b strings.Builder
	b.WriteString(`<!-- Generated from format/iceberg; do not edit. Run: go test ./format/iceberg -run TestTypesPage -update -->
# SQL types

Types in a statement are DuckDB's. A column may also be declared in the spelling of Iceberg and Spark: ` + "`string`, `long`, `fixed(16)`, `array<int>`, `struct<a: int, b: string>`, `map<string, double>`" + `.
` + "`timestamp` is zoneless, `timestamptz` zoned" + `, in every spelling.

## Types of columns

| declared as | also | Iceberg | read and cast as | in Parquet | note |
| --- | --- | --- | --- | --- | --- |
`)
	for _, r := range typeRows {
		if r.to == nil {
			continue
		}
		cast, form := "", ""
		for _, c := range typeRows {
			if c.canonical && c.shown == r.shown {
				cast, form = c.Duck, c.parquet
			}
		}
		if r.Duck == "FIXED" {
			cast, form = "BLOB", r.parquet
		}
		if r.Duck == "DECIMAL" {
			cast = "DECIMAL(p,s)"
		}
		fmt.Fprintf(&b, "| `%s` | %s | `%s` | `%s` | %s | %s |\n", r.Duck, codeList(r.Also), r.shown, cast, form, r.note)
	}
	b.WriteString("| `T[]`, `T[n]` | `list<T>`, `array<T>` | `list<T>` | `T[]` | LIST | the length of `T[n]` is not kept |\n" +
		"| `STRUCT(a T, …)` | `ROW(a T, …)`, `struct<a: T, …>` | `struct<a: T, …>` | `STRUCT(\"a\" T, …)` | group | a field may be `NOT NULL` |\n" +
		"| `MAP(K, V)` | `map<K, V>` | `map<K, V>` | `MAP(K, V)` | MAP | |\n" +
		"| `ENUM('a', …)` | | `string` | `VARCHAR` | STRING on BYTE_ARRAY | the values, not the list of them |\n")
	b.WriteString("\n## Types without a home\n\nThese are refused with the nearest type named.\n\n| type | also | nearest | why |\n| --- | --- | --- | --- |\n")
	for _, r := range typeRows {
		if r.to == nil {
			fmt.Fprintf(&b, "| `%s` | %s | `%s` | %s |\n", r.Duck, codeList(r.Also), r.nearest, r.note)
		}
	}
	b.WriteString(`
## Implicit casts

A value is cast to its column's type without being asked only where no value of its type loses anything; everything else is an error that names the column and both types.

| from | to |
| --- | --- |
`)
	for _, r := range typeRows {
		if r.Digits > 0 {
			fmt.Fprintf(&b, "| `%s` | %s |\n", r.Duck, strings.Join(r.integerTargets(), ", "))
		}
	}
	b.WriteString("| `DECIMAL(p,s)` | `decimal` with as many digits before and after the point; `int` when s is 0 and p at most 9, `long` at most 18; `float` when p is at most 6, `double` at most 15 |\n" +
		"| `FLOAT` | `float`, `double` |\n" +
		"| `DATE` | `date`, `timestamp` (midnight); not `timestamptz`, which would depend on the session's time zone |\n" +
		"| `TIMESTAMP_S`, `TIMESTAMP_MS`, `TIMESTAMP` | `timestamp` |\n" +
		"| `ENUM`, `JSON`, `VARCHAR` | `string` |\n" +
		"| `BLOB` | `binary`, `fixed(n)`; another length than n is an error when the row is written |\n" +
		"| `NULL` | anything |\n" +
		"| lists, maps, structs | part by part; the fields of a struct have the same names, but for case, in the same order |\n")
	return b.String()
}

func (r *typeRow) integerTargets() []string {
	var out []string
	for _, t := range []struct {
		name string
		bits int
	}{{"int", 31}, {"long", 63}, {"float", 24}, {"double", 53}} {
		if r.Bits <= t.bits {
			out = append(out, "`"+t.name+"`")
		}
	}
	if r.Digits <= 38 {
		out = append(out, fmt.Sprintf("`decimal` with %d digits before the point", r.Digits))
	}
	if len(out) == 0 {
		return []string{"nothing"}
	}
	return out
}

func codeList(names []string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = "`" + n + "`"
	}
	return strings.Join(out, ", ")
}
