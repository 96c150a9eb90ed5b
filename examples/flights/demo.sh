#!/usr/bin/env bash
# demo.sh FIRN INPUT.parquet: the main job in a fresh directory. Creates
# lake.air.flights partitioned by month, inserts the file twice under one
# idempotency key, and shows that the second run added nothing. Then the same with
# a Delta table partitioned by origin, filled from the Iceberg table.
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

say "a Delta table of the same flights, partitioned by origin: lake.air.by_origin"
run -c "CREATE TABLE lake.air.by_origin (date timestamp, delay bigint, distance bigint, origin string, destination string)
        USING delta PARTITIONED BY (origin)"
copy="INSERT INTO lake.air.by_origin SELECT * FROM lake.air.flights"
delta=$(run -o json --idempotency-key demo-delta -c "$copy")
echo "$delta"
again=$(run -o json --idempotency-key demo-delta -c "$copy")
run -c "SELECT origin, count(*) AS flights, sum(distance) AS distance FROM lake.air.by_origin GROUP BY origin ORDER BY flights DESC LIMIT 5"
run -c "SELECT count(*) AS flights, count(DISTINCT origin) AS origins FROM lake.air.by_origin"
run -c "DESCRIBE HISTORY lake.air.by_origin"

total=$(run -o json -c "SELECT count(*) AS n FROM lake.air.by_origin" | field n)
[ "$(field commit <<<"$delta")" = committed ] || { echo "demo: the insert into the Delta table did not commit" >&2; exit 1; }
[ "$(field deduplicated <<<"$again")" = true ] || { echo "demo: the second insert into the Delta table was not recognised" >&2; exit 1; }
[ "$rows" = "$total" ] || { echo "demo: $rows rows were inserted, the Delta table has $total" >&2; exit 1; }
say "done: $rows rows in one snapshot, and in one version of a Delta table; the second inserts added nothing"
