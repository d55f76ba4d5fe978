#!/usr/bin/env bash
# Measure against the budget, in one run against one mongod; arguments choose what to measure.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"
ensure_env
with_mongod bench
"$VENV/bin/python" -W ignore scripts/bench.py "$@"
