#!/usr/bin/env bash
# Installs the other readers into a virtual environment, $FIRN_VENV or .venv, and
# prints the path of its Python. What is there already isn't touched. engines.sh gives
# another environment and what goes into it.
set -euo pipefail
cd "$(dirname "$0")/../.."
. integration/scripts/had.sh
venv=${1:-${FIRN_VENV:-.venv}}
requirements=${2:-integration/interop/requirements.txt}
want=$(sha256sum "$requirements")
if [ ! -x "$venv/bin/python" ] || [ "$(cat "$venv/requirements.sha256" 2>/dev/null)" != "$want" ]; then
  had venv python3 -m venv "$venv" >&2
  had readers "$venv/bin/pip" install --disable-pip-version-check -q -r "$requirements" >&2
  echo "$want" >"$venv/requirements.sha256"
fi
realpath -s "$venv/bin/python"
