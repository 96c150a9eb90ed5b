#!/usr/bin/env bash
# chaos.sh [RUNS] [RUN]: runs the seeds 0 to RUNS-1, or RUN alone; without either
# the few that have each fault once. Prints a line for each run, and the logs of
# those that failed. The processes are built with fail points; take others, built
# with the tag failpoint too, with FIRN_BIN. FIRN_CHAOS_PARALLEL runs go at a
# time, 2 by default.
set -euo pipefail
cd "$(dirname "$0")/../.."
export FIRN_BIN FIRN_CHAOS_RUNS=${1:-} FIRN_CHAOS_RUN=${2:-}
tests=$(mktemp -d)
trap 'rm -rf "$tests"' EXIT
if [ -z "${FIRN_BIN:-}" ]; then
	FIRN_BIN=$tests/firn
	go build -tags duckdb_arrow,failpoint -o "$FIRN_BIN" ./cmd/firn
fi
FIRN_BIN=$(realpath "$FIRN_BIN")
# Not `go test`, which keeps the lines back until the end.
go test -tags duckdb_arrow,chaos -c -o "$tests/chaos" ./integration/chaos
cd integration/chaos
"$tests/chaos" -test.timeout 6h -test.parallel "${FIRN_CHAOS_PARALLEL:-2}"
