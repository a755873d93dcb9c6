#!/usr/bin/env bash
# Measures semaphored, etcd's lock API and Redis in one run, on one disk, in turn, and prints the
# medians and their ratios. Every engine has each change on disk before it answers: semaphored with
# SQLite's synchronous=FULL, etcd with its write-ahead log, Redis with appendfsync always.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
bin_dir="$root/build/release/bin"
rounds=3
duration_s=4
warmup_s=1
work_parent="${TMPDIR:-/tmp}"
json_file=""
install=yes

usage() {
  cat <<'TEXT'
Usage: tests/bench/compare.sh [options]
       tests/bench/compare.sh --base DIR [options]   this build beside the build in DIR, on SQLite, Postgres and Consul
       tests/bench/compare.sh --self                 a build beside itself: how far medians differ by noise alone

  --rounds N      times that each case is run, in turn with all others (3)
  --duration S    seconds measured in each run (4)
  --bin-dir DIR   where semaphored and semaphored_bench are (build/release/bin)
  --work-dir DIR  the data folders are made below it; it must be on a real disk ($TMPDIR or /tmp)
  --json FILE     writes the medians and ratios as JSON too
  --no-install    does not look whether the peers are installed
  --help

About 4 minutes with the defaults, with --base 8 (see --base DIR --help). The machine should be otherwise idle.
TEXT
}

case " $* " in
  *" --base"[\ =]* | *" --self "*) exec /usr/bin/python3 -B "$here/compare_builds.py" "$@" ;;
esac
while [ $# -gt 0 ]; do
  case "$1" in
    --rounds) rounds=$2; shift 2 ;;
    --duration) duration_s=$2; shift 2 ;;
    --bin-dir) bin_dir=$2; shift 2 ;;
    --work-dir) work_parent=$2; shift 2 ;;
    --json) json_file=$2; shift 2 ;;
    --no-install) install=no; shift ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done

say() { printf 'compare: %s\n' "$*" >&2; }

[ "$install" = no ] || "$root/deploy/install.sh" --bench >&2
for program in "$bin_dir/semaphored" "$bin_dir/semaphored_bench"; do
  [ -x "$program" ] && continue
  say "$program is missing: cmake --preset release && cmake --build --preset release"
  exit 1
done
case "$(stat --file-system --format=%T "$work_parent")" in
  tmpfs | ramfs)
    say "$work_parent is in memory, so its fsync costs nothing: choose another --work-dir"
    exit 1 ;;
esac

work=$(mktemp -d "$work_parent/semaphored-compare.XXXXXX")
pids=()
finish() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  rm -rf "$work"
}
trap finish EXIT

# Ports that nobody listens on now; all asked for at once, so that they differ.
read -r daemon_port etcd_port etcd_peer_port redis_port < <(/usr/bin/python3 -c '
import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]
print(*(s.getsockname()[1] for s in sockets))')

# start NAME COMMAND…: in the background, its output in a log.
start() {
  local name=$1; shift
  mkdir -p "$work/$name"
  "$@" >"$work/$name.log" 2>&1 &
  pids+=($!)
}

wait_for_port() {
  local name=$1 port=$2
  for _ in $(seq 100); do
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then return; fi
    sleep 0.1
  done
  say "$name does not listen:"; cat "$work/$name.log" >&2
  exit 1
}

start daemon "$bin_dir/semaphored" --store "sqlite://$work/daemon/state.db" \
  --listen "127.0.0.1:$daemon_port"
start etcd etcd --data-dir "$work/etcd/data" \
  --listen-client-urls "http://127.0.0.1:$etcd_port" \
  --advertise-client-urls "http://127.0.0.1:$etcd_port" \
  --listen-peer-urls "http://127.0.0.1:$etcd_peer_port" \
  --initial-advertise-peer-urls "http://127.0.0.1:$etcd_peer_port" \
  --initial-cluster "default=http://127.0.0.1:$etcd_peer_port"
start redis redis-server --bind 127.0.0.1 --port "$redis_port" --dir "$work/redis" \
  --appendonly yes --appendfsync always --save ""
wait_for_port daemon "$daemon_port"
wait_for_port etcd "$etcd_port"
wait_for_port redis "$redis_port"

# Case name, port, and what the generator is told.
cases=(
  "session@256|$daemon_port|session --clients 256"
  "unary@64|$daemon_port|unary --clients 64"
  "contended session@64|$daemon_port|contended --clients 64 --via session"
  "contended unary@64|$daemon_port|contended --clients 64 --via unary"
  "etcd@64|$etcd_port|etcd --clients 64"
  "etcd@256|$etcd_port|etcd --clients 256"
  "contended etcd@64|$etcd_port|etcd --clients 64 --contended"
  "redis@64|$redis_port|redis --clients 64 --streams 64"
  "redis@256|$redis_port|redis --clients 256 --streams 256"
  "redis pipelined@64|$redis_port|redis --clients 64"
  "redis pipelined@256|$redis_port|redis --clients 256"
)
failed=0
for round in $(seq "$rounds"); do
  for case in "${cases[@]}"; do
    IFS='|' read -r name port arguments <<<"$case"
    say "round $round of $rounds: $name"
    # shellcheck disable=SC2086  # the arguments are words
    if ! line=$("$bin_dir/semaphored_bench" $arguments --server "127.0.0.1:$port" -o json \
        --duration "$duration_s" --warmup "$warmup_s"); then
      say "$name went wrong: $line"
      failed=1
    fi
    printf '%s\t%s\n' "$name" "$line" >>"$work/results.tsv"
  done
done

/usr/bin/python3 "$here/compare_report.py" "$work/results.tsv" ${json_file:+--json "$json_file"}
exit "$failed"
