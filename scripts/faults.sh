#!/usr/bin/env bash
# Kill at every fault point, not at a seeded slice of them; arguments go to pytest. Takes long.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"
ensure_env
"$VENV/bin/python" -m pytest tests/faults --all-points "$@"
