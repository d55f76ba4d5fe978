#!/usr/bin/env bash
# Run everything that must hold: the checks, then every test against a real mongod.
# Arguments go to pytest. Needs Linux x86-64, Python >= 3.11 and git; brings the rest itself.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"
ensure_env

# other_adk VERSION: the tests of the seam to ADK, in an environment with that version.
other_adk() {
    local folder="$STATE/venv-adk-$1" seam=() tests
    for tests in tests/adapter tests/shapes tests/adk_bugs; do
        [ ! -d "$tests" ] || seam+=("$tests")
    done
    ensure_env "$folder" "$1"
    say "tests of the seam against google-adk $1: ${seam[*]}"
    "$folder/bin/python" -m pytest "${seam[@]}"
}

tell_newer_adk "$(newest_adk)"
./scripts/check.sh

say "tests against google-adk $(adk_versions | head -n 1) (faults: a seeded slice; scripts/faults.sh runs all)"
# Several processes share the work and the servers. Arguments come last, so "-n 0" uses one only.
"$VENV/bin/python" -m pytest -n "$(nproc)" --dist worksteal "$@"

for version in $(adk_versions | tail -n +2); do
    other_adk "$version"
done
say "all passed"
