#!/usr/bin/env bash
# demo.sh FIRN INPUT.parquet: the main job in a fresh directory. Creates
# lake.air.flights partitioned by month, inserts the file twice under one
# idempotency key, and shows that the second run added nothing.
set -euo pipefail
firn=$(realpath "$1")
input=$(realpath "$2")
dir=$(mktemp -d "${TMPDIR:-/tmp}/firn-demo.XXXXXX")
trap 'rm -rf "$dir"' EXIT

run() { "$firn" sql --dir "$dir/data" "$@"; }
say() { printf '\n== %s\n' "$1"; }
# field NAME: the value of a top-level field of the JSON object on stdin.
field() { sed -E "s/.*\"$1\":(\"([^\"]*)\"|([^,}]*)).*/\2\3/"; }

say "create lake.air.flights, partitioned by month(date)"
run -c "CREATE NAMESPACE lake.air" \
    -c "CREATE TABLE lake.air.flights (date timestamp, delay bigint, distance bigint, origin string, destination string)
        PARTITIONED BY (month(date))"

insert="INSERT INTO lake.air.flights SELECT * FROM read_parquet('$input')"
say "the plan"
run -c "EXPLAIN $insert"

say "insert, under the key demo"
first=$(run -o json --idempotency-key demo -c "$insert")
echo "$first"
say "the same again, under the same key"
second=$(run -o json --idempotency-key demo -c "$insert")
echo "$second"

say "what is in the table"
run -c "SELECT count(*) AS flights, sum(distance) AS distance, sum(delay) AS delay FROM lake.air.flights"
run -c "SELECT month(date) AS month, count(*) AS flights FROM lake.air.flights GROUP BY ALL ORDER BY 1"
run -c "SELECT count(*) AS july FROM lake.air.flights WHERE date >= TIMESTAMP '2001-07-01'"

rows=$(field rows <<<"$first")
total=$(run -o json -c "SELECT count(*) AS n FROM lake.air.flights" | field n)
[ "$(field commit <<<"$first")" = committed ] || { echo "demo: the first insert did not commit" >&2; exit 1; }
[ "$(field deduplicated <<<"$second")" = true ] || { echo "demo: the second insert was not recognised" >&2; exit 1; }
[ "$rows" = "$total" ] || { echo "demo: $rows rows were inserted, $total are there" >&2; exit 1; }
say "done: $rows rows in one snapshot; the second insert added nothing"
