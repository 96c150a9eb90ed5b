#!/usr/bin/env bash
# Installs the readers into a virtual environment and runs the interop tests.
set -euo pipefail
cd "$(dirname "$0")/../.."
. integration/scripts/had.sh
venv=${FIRN_VENV:-.venv}
want=$(sha256sum integration/interop/requirements.txt)
if [ ! -x "$venv/bin/python" ] || [ "$(cat "$venv/requirements.sha256" 2>/dev/null)" != "$want" ]; then
  had venv python3 -m venv "$venv"
  had readers "$venv/bin/pip" install --disable-pip-version-check -q -r integration/interop/requirements.txt
  echo "$want" >"$venv/requirements.sha256"
fi
FIRN_SERVERS=$(integration/scripts/servers.sh)
export FIRN_SERVERS
FIRN_INTEROP_PYTHON=$(realpath -s "$venv/bin/python") FIRN_BIN=$(realpath bin/firn) \
  go test -tags duckdb_arrow,interop -count=1 -timeout 20m -v ./integration/interop
