#!/usr/bin/env bash
# Start, stop or ask about a private mongod; its data lives until it is stopped.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
    cat <<'EOF'
usage: scripts/mongo.sh start|stop|status|uri [--standalone | --members N] [--name NAME] [--port P]
                        [--advertise HOST:PORT,...] [--uncompressed]

  start   start it, wait until it takes writes, print its URI (running already: print its URI)
  stop    stop it and delete its data
  status  say whether it runs
  uri     print the URI of a running one

  --standalone  no replica set
  --members N   a replica set of N members (default 1)
  --name NAME   which one; each has its own data (default: main)
  --port P      the first port (default: free ones)
  --advertise HOST:PORT,...
                the address of each member, for the other members and for clients: that of a proxy
                in front of it, which finds the member's own port in <its folder>/port
  --uncompressed
                what it writes to its files can be read in them

With DURABLE_MONGO_MEMORY=1 data is in memory where much of it is free (the tests do so).
The program is $MONGOD, else mongod on PATH, else the one in the project's virtual environment.
EOF
}

command="${1:-}"
[ $# -gt 0 ] && shift
members=1 name=main port="" kind=replica advertise="" compression=()
while [ $# -gt 0 ]; do
    case "$1" in
    --standalone) kind=standalone && shift ;;
    --uncompressed)
        compression=(--wiredTigerCollectionBlockCompressor none --wiredTigerJournalCompressor none)
        shift
        ;;
    --members | --name | --port | --advertise)
        [ $# -ge 2 ] || die "$1 needs a value" "See scripts/mongo.sh --help."
        printf -v "${1#--}" '%s' "$2" && shift 2
        ;;
    *) usage >&2 && die "unknown option $1" ;;
    esac
done
[[ "$members" =~ ^[1-7]$ ]] || die "--members $members: expected 1 to 7"
[[ "$name" =~ ^[A-Za-z0-9._-]+$ && "$name" != .* ]] || die "--name $name: use letters, digits, ._-"
[[ -z "$port" || "$port" =~ ^[0-9]+$ ]] || die "--port $port: expected a number"
IFS=, read -r -a advertised <<<"$advertise"
[[ -z "$advertise" || ("$kind" = replica && ${#advertised[@]} -eq $members) ]] ||
    die "--advertise $advertise: expected one HOST:PORT for each of $members members of a replica set"

home="$STATE/mongo/$name"
MEMORY_KB=$((6 * 1024 * 1024)) # free, or data stays on disk
# DURABLE_PYTHON lets a test run lend its own interpreter; else the project's environment is made.
python="${DURABLE_PYTHON:-$VENV/bin/python}"

# is_ours PID FOLDER: whether that process is our mongod, and not another one that got its number.
is_ours() {
    kill -0 "$1" 2>/dev/null || return 1
    [ ! -r "/proc/$1/cmdline" ] || grep -qzxF -- "$2" "/proc/$1/cmdline"
}

# is_gone PID: whether it holds no port any more; a process nobody waits for stays a zombie, and is
# one only when its last thread has ended.
is_gone() {
    kill -0 "$1" 2>/dev/null || return 0
    grep -qs '^State:[[:space:]]*Z' "/proc/$1/status" &&
        [ "$(find "/proc/$1/task" -mindepth 1 -maxdepth 1 2>/dev/null | wc -l)" -le 1 ]
}

is_running() {
    local member
    [ -f "$home/uri" ] || return 1
    for member in "$home"/member-*; do
        is_ours "$(cat "$member/pid" 2>/dev/null || echo 0)" "$member/data" || return 1
    done
}

stop_members() {
    local member pid waited
    for member in "$home"/member-*; do
        pid="$(cat "$member/pid" 2>/dev/null || true)"
        [ -n "$pid" ] && is_ours "$pid" "$member/data" || continue
        # The data is thrown away: nothing is gained by a clean shutdown.
        kill -KILL "$pid"
        for ((waited = 0; waited < 100; waited++)); do
            is_gone "$pid" && break
            sleep 0.05
        done
    done
    for member in "$home"/member-*; do
        forget_data "$member"
    done
    rm -rf "$home"
}

# has_memory: whether several gigabytes of it are free, and a folder is in it.
has_memory() {
    local free
    free="$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo 2>/dev/null || echo 0)"
    [ "${free:-0}" -ge "$MEMORY_KB" ] &&
        [ "$(df -k --output=avail /dev/shm 2>/dev/null | tail -n 1)" -ge "$MEMORY_KB" ] 2>/dev/null
}

# make_data FOLDER: its data folder; with DURABLE_MONGO_MEMORY=1 in memory, where journals cost less.
make_data() {
    if [ "${DURABLE_MONGO_MEMORY:-}" = 1 ] && has_memory; then
        ln -s "$(mktemp -d /dev/shm/durable-mongo-XXXXXXXX)" "$1/data"
    else
        mkdir "$1/data"
    fi
}

# forget_data FOLDER: delete what make_data made in memory.
forget_data() {
    local data
    data="$(readlink "$1/data" || true)"
    case "$data" in /dev/shm/durable-mongo-*) rm -rf "$data" ;; esac
}

# launch MEMBER PORT: one mongod in the background; false if it could not start.
launch() {
    local folder="$home/member-$1" options=()
    forget_data "$folder"
    rm -rf "$folder"
    mkdir -p "$folder"
    make_data "$folder"
    printf '%s' "$2" >"$folder/port"
    [ "$kind" = standalone ] || options=(--replSet rs0)
    # Test commands: fail points. The lock (descriptor 9) must not outlive this script in mongod.
    "$mongod" --fork --logpath "$folder/log" --pidfilepath "$folder/pid" --dbpath "$folder/data" \
        --bind_ip 127.0.0.1 --port "$2" --nounixsocket --wiredTigerCacheSizeGB 0.25 \
        --setParameter enableTestCommands=1 --setParameter diagnosticDataCollectionEnabled=false \
        "${compression[@]}" "${options[@]}" >"$folder/out" 2>&1 9>&-
}

# launch_free MEMBER: the same on a free port, which it prints; another is tried if it was taken.
launch_free() {
    local try free
    for try in 1 2 3 4 5; do
        free="$("$python" "$ROOT/scripts/mongo_ready.py" free-port)"
        launch "$1" "$free" && printf '%s' "$free" && return
        grep -qs 'Address already in use' "$home/member-$1/log" || return 1
    done
    return 1
}

explain_failure() {
    local folder="$home/member-$1"
    tail -n 5 "$folder/out" "$folder/log" >&2 2>/dev/null || true
    stop_members
    die "$mongod did not start (its last words are above)" \
        "Give another port or program (--port, MONGOD), or set MONGODB_URI to a server you have."
}

# take_turn: one start or stop at a time, until this script ends.
take_turn() {
    mkdir -p "$STATE/mongo"
    exec 9>"$STATE/mongo/.lock"
    flock 9
}

start() {
    local member at hosts=() uri
    take_turn
    if is_running; then
        cat "$home/uri"
        return
    fi
    [ -n "${DURABLE_PYTHON:-}" ] || ensure_env
    mongod="$(find_mongod "$python")"
    [ ! -d "$home" ] || stop_members
    [ "$kind" != standalone ] || members=1
    for ((member = 0; member < members; member++)); do
        if [ -n "$port" ]; then
            at=$((port + member))
            launch "$member" "$at" || explain_failure "$member"
        else
            at="$(launch_free "$member")" || explain_failure "$member"
        fi
        hosts+=("127.0.0.1:$at")
    done
    uri="$("$python" "$ROOT/scripts/mongo_ready.py" "$kind" ${advertise:+--through "${hosts[0]}"} \
        "${advertised[@]:-${hosts[@]}}")" || {
        stop_members
        die "mongod started but did not become ready" "Look at the machine's load and disk."
    }
    printf '%s\n' "$uri" | tee "$home/uri"
}

case "$command" in
start) start ;;
stop)
    take_turn
    if [ -d "$home" ]; then
        stop_members
        say "stopped mongod '$name' and deleted its data"
    else
        say "mongod '$name' was not running"
    fi
    ;;
status)
    if is_running; then
        printf "mongod '%s' runs at %s\n" "$name" "$(cat "$home/uri")"
    else
        printf "mongod '%s' does not run\n" "$name"
        exit 3
    fi
    ;;
uri)
    is_running || die "mongod '$name' does not run" "Run scripts/mongo.sh start --name $name."
    cat "$home/uri"
    ;;
-h | --help) usage ;;
*) usage >&2 && exit 2 ;;
esac
