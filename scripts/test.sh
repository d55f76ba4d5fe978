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

# both_halves: the checks and every test, in two processes at once, each with servers of its own.
# Seconds of one quiet core: checks 40, unit 27, app 19, conformance 50, sessions 60, shapes 110;
# adapter 7, adk_bugs 25, cases 70, faults 90, generated 31, protocol 27, samples 32, servers 13.
both_halves() {
    local first=() second=() folder log="$STATE/first-half.log" pid failed=0
    for folder in tests/*/; do
        case "$folder" in
            tests/support/ | tests/__pycache__/) ;;
            tests/app/ | tests/conformance/ | tests/replay/ | tests/retention/ | tests/sessions/ | \
                tests/shapes/ | tests/typing/ | tests/unit/) first+=("$folder") ;;
            *) second+=("$folder") ;;
        esac
    done
    say "beside the second half: the checks, then ${first[*]}"
    (
        ./scripts/check.sh
        # The checks have just run the tests of the structure.
        "$VENV/bin/python" -m pytest --quiet -p no:cacheprovider "${first[@]}" \
            "${STRUCTURE[@]/#/--ignore=}"
    ) >"$log" 2>&1 &
    pid=$!
    # shellcheck disable=SC2064  # the number as it is now
    trap "pkill -P $pid 2>/dev/null; kill $pid 2>/dev/null || true" EXIT
    "$VENV/bin/python" -m pytest "${second[@]}" || failed=1
    wait "$pid" || failed=1
    cat "$log"
    [ "$failed" = 0 ] || die "a test failed (see above)"
}

tell_newer_adk "$(newest_adk)"
say "tests against google-adk $(adk_versions | head -n 1) (faults: a seeded slice; scripts/faults.sh runs all)"
if [ "$#" -gt 0 ]; then
    ./scripts/check.sh
    "$VENV/bin/python" -m pytest "$@"
else
    both_halves
fi

for version in $(adk_versions | tail -n +2); do
    other_adk "$version"
done
say "all passed"
