#!/usr/bin/env bash
# Every fault at every point, not a seeded slice; ends with one line of figures. Takes long.
#   scripts/faults.sh [pytest arguments]
# The matrix of tests/faults runs in one process for each core; then, one after the other, failovers,
# the deep runs of the protocol's model and of the races. Fails on any difference.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"
ensure_env

results=() failed=0

# run NAME ARGUMENTS...: one run of pytest; its results are in a file.
run() {
    local file="$STATE/faults-$1.xml"
    shift
    rm -f "$file"
    results+=("$file")
    "$VENV/bin/python" -m pytest --quiet --all-points --junitxml "$file" "$@" || failed=1
    [ -f "$file" ] || die "pytest left no results" "See above."
}

say "the matrix of faults, in $(nproc) processes"
run matrix tests/faults -n "$(nproc)" --dist worksteal "$@"
for folder in failover protocol races; do
    [ ! -d "tests/$folder" ] || { say "tests/$folder" && run "$folder" "tests/$folder" "$@"; }
done
PYTHONPATH="$ROOT" "$VENV/bin/python" -m tests.faults.totals "${results[@]}" || failed=1
[ "$failed" = 0 ] || die "a fault made a difference (see above)"
say "no fault made a difference"
