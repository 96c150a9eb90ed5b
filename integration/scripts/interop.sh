#!/usr/bin/env bash
# Installs the readers and runs the interop tests.
set -euo pipefail
cd "$(dirname "$0")/../.."
FIRN_INTEROP_PYTHON=$(integration/scripts/readers.sh)
FIRN_SERVERS=$(integration/scripts/servers.sh)
export FIRN_INTEROP_PYTHON FIRN_SERVERS
FIRN_BIN=$(realpath bin/firn)
export FIRN_BIN
go test -tags duckdb_arrow,interop -count=1 -timeout 20m -v ./integration/interop
# What of the open write protocol's client needs no engine; make interop-engines has the rest.
FIRN_ENGINES_PYTHON=$FIRN_INTEROP_PYTHON go test -tags duckdb_arrow,interop -count=1 -timeout 10m -v -run '^(TestClient|TestClientOverTLS|TestTypes|TestPartitionTexts)$' ./integration/engines
