#!/usr/bin/env bash
# Installs Spark, Ray and the readers of what they wrote into an environment of their
# own, and SeaweedFS, and runs the tests of package integration/engines. Needs a JRE
# of version 17 or later.
set -euo pipefail
cd "$(dirname "$0")/../.."
FIRN_ENGINES_PYTHON=$(integration/scripts/readers.sh "${FIRN_ENGINES_VENV:-.venv-engines}" integration/engines/requirements.txt)
FIRN_SERVERS=$(integration/scripts/servers.sh seaweedfs)
export FIRN_ENGINES_PYTHON FIRN_SERVERS
FIRN_BIN=$(realpath bin/firn) go test -tags duckdb_arrow,interop -count=1 -timeout 30m -v ./integration/engines "$@"
