#!/usr/bin/env bash
# Check without running anything durable: ruff, formatting, types, and the tests of the structure.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"
ensure_env

say "ruff: rules, then formatting"
"$VENV/bin/ruff" check .
"$VENV/bin/ruff" format --check .

say "mypy --strict: src and tests/typing"
"$VENV/bin/mypy"

say "structure: layers, exports, errors, imports, repository"
"$VENV/bin/python" -m pytest -q "${STRUCTURE[@]}"
