#!/usr/bin/env bash
# Installs the servers and the readers and runs the tests that start whole clusters
# of processes.
set -euo pipefail
cd "$(dirname "$0")/../.."
FIRN_INTEROP_PYTHON=$(integration/scripts/readers.sh)
FIRN_SERVERS=$(integration/scripts/servers.sh)
export FIRN_INTEROP_PYTHON FIRN_SERVERS
FIRN_BIN=$(realpath bin/firn) go test -tags duckdb_arrow,integration -count=1 -timeout 40m ./integration/...
