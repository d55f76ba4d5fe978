#!/usr/bin/env bash
# Run every shape of an ADK app: suspended, continued in new processes, killed. Prints a table.
#   scripts/shapes.sh [--all] [--readme] [pytest arguments]
#   --all      kill at every call in both replay modes, not at one drawn call; takes an hour
#   --readme   write the support table of README.md anew from the results
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"

calls=() readme=() rest=()
for argument in "$@"; do
    case "$argument" in
        --all) calls=(--all-points) ;;
        --readme) readme=(--readme README.md) ;;
        *) rest+=("$argument") ;;
    esac
done

# run VERSION FOLDER: all shapes under one google-adk; the results become an XML file.
run() {
    say "shapes under google-adk $1, in $(nproc) processes"
    "$2/bin/python" -m pytest tests/shapes -n "$(nproc)" --quiet \
        --junitxml "$STATE/shapes-$1.xml" "${calls[@]}" "${rest[@]}" >&2 || failed=1
}

failed=0
ensure_env
floor="$(sed -n 's/^ *"google-adk>=\([0-9.]*\),.*/\1/p' pyproject.toml)"
results=()
for version in $(adk_versions); do
    folder="$VENV"
    if [ "$version" != "$(adk_versions | head -n 1)" ]; then
        folder="$STATE/venv-adk-$version"
        ensure_env "$folder" "$version"
    fi
    run "$version" "$folder"
    results+=("$STATE/shapes-$version.xml")
done
tell_newer_adk "$(newest_adk)"
PYTHONPATH="$ROOT" "$VENV/bin/python" -W ignore -m tests.shapes.table \
    --floor "$floor" "${readme[@]}" "${results[@]}"
exit "$failed"
