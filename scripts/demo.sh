#!/usr/bin/env bash
# Show a refund desk that survives SIGKILL; --interactive takes your own answers.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"
ensure_env
with_mongod demo
"$VENV/bin/python" -m durable_adk.examples.refund_desk "$@"
