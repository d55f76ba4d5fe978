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

# beside LOG COMMAND...: run it in the background, in a process group of its own that Ctrl-C ends too.
beside() {
    local log="$1"
    shift
    set -m
    "$@" >"$log" 2>&1 </dev/null &
    set +m
    GROUPS_BESIDE+=("$!")
}

# end_beside: interrupt what still runs beside this script; pytest then stops its servers.
end_beside() {
    local group
    for group in "${GROUPS_BESIDE[@]}"; do
        kill -INT -- "-$group" 2>/dev/null || true
    done
    wait
}

checks_and_rest() {
    ./scripts/check.sh
    # The checks have just run the tests of the structure.
    "$VENV/bin/python" -m pytest --quiet -p no:cacheprovider "$@" "${STRUCTURE[@]/#/--ignore=}"
}

# everything: the checks and every test, in three processes at once, each with servers of its own.
# Two of them keep two cores busy; the third has what waits for elections and leases, and as much
# else as lets all end together. A new folder is in the third until it is moved.
# Seconds of processor, mongod's too, measured on a machine that had four times as much to do as it
# has cores (a quiet one needs less): cases 285, shapes 155, conformance 103, unit 54, generated 42,
# protocol 41, failover 34, app 30, races 26, replay 22, servers 16, soak 12. Of one quiet core,
# measured before: faults 90, sessions 60, checks 40, samples 32, adk_bugs 25, adapter 7.
# Where they wait most: failover 55 seconds, soak 25, conformance 18, servers 15.
everything() {
    local first=() second=() third=() folder group failed=0 logs="$STATE/tests"
    GROUPS_BESIDE=()
    for folder in tests/*/; do
        case "$folder" in
            tests/support/ | tests/__pycache__/) ;;
            tests/cases/ | tests/generated/) first+=("$folder") ;;
            tests/faults/ | tests/samples/ | tests/sessions/ | tests/shapes/) second+=("$folder") ;;
            *) third+=("$folder") ;;
        esac
    done
    mkdir -p "$logs"
    trap end_beside EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    say "in three processes; what the first two say is shown at the end:"
    say "the checks, then ${third[*]}"
    beside "$logs/rest.log" checks_and_rest "${third[@]}"
    say "${second[*]}"
    beside "$logs/second.log" "$VENV/bin/python" -m pytest --quiet -p no:cacheprovider "${second[@]}"
    say "${first[*]}"
    "$VENV/bin/python" -m pytest "${first[@]}" || failed=1
    for group in "${GROUPS_BESIDE[@]}"; do
        wait "$group" || failed=1
    done
    trap - EXIT INT TERM
    cat "$logs/second.log" "$logs/rest.log"
    [ "$failed" = 0 ] || die "a test failed (see above)"
}

tell_newer_adk "$(newest_adk)"
say "tests against google-adk $(adk_versions | head -n 1) (faults: a seeded slice; scripts/faults.sh runs all)"
if [ "$#" -gt 0 ]; then
    ./scripts/check.sh
    "$VENV/bin/python" -m pytest "$@"
else
    everything
fi

for version in $(adk_versions | tail -n +2); do
    other_adk "$version"
done
say "all passed"
