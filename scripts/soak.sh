#!/usr/bin/env bash
# Let four workers be killed and paused, and three servers fail over, while conversations go on;
# compare each with its undisturbed twin. Prints figures. Takes 12 minutes.
#   scripts/soak.sh [--seconds 600] [--executions N] [--failover-every 60] [--seed 1] [--keep]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"
ensure_env
MONGOD="$(find_mongod "$VENV/bin/python")"
export MONGOD
PYTHONPATH="$ROOT" "$VENV/bin/python" -W ignore -m tests.soak.soaking "$@"
