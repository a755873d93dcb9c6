#!/bin/sh
# From a bare Debian 12 to a running daemon that does its main job: keep a fragile service from falling over.
set -eu

usage() {
  cat <<'TEXT'
Usage: sh deploy/quickstart.sh [--keep] [--help]

Installs what is missing, builds, starts the daemon on its embedded store, and shows a web service that bears four
requests at once with forty eager clients: first without the daemon, then with it. Then it names the daemon's page.

  --keep   leave the daemon running, and say how to talk to it

Safe to run again: what is there is used as it is. Everything goes into build/; nothing outside of it is changed
but for the Debian packages. The exit code is 0 only if not one request was refused.
TEXT
}

keep=no
for argument in "$@"; do
  case "$argument" in
    --keep) keep=yes ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
cd "$root"
state=$root/build/quickstart
bin=$root/build/release/bin

step() { printf '\n== %s\n' "$*"; }

# Runs the command with its output in a log, of which it shows the last line: on a terminal each second, else each 20 s.
job=''
watched() { # LOG COMMAND...
  log=$1
  shift
  "$@" >"$log" 2>&1 </dev/null &
  job=$!
  begun=$(date +%s)
  shown=0
  while kill -0 "$job" 2>/dev/null; do
    elapsed=$(($(date +%s) - begun))
    line=$(tail -n 1 "$log" | tr -d '\r' | cut -c 1-100)
    if [ -t 1 ]; then
      printf '\r\033[K%4d s  %s' "$elapsed" "$(printf '%s' "$line" | cut -c 1-70)"
    elif [ $((elapsed - shown)) -ge 20 ]; then
      printf '%4d s  %s\n' "$elapsed" "$line"
      shown=$elapsed
    fi
    sleep 1
  done
  [ ! -t 1 ] || printf '\r\033[K'
  status=0
  wait "$job" || status=$?
  job=''
  echo "$(($(date +%s) - begun)) s; all of it: $log"
  [ "$status" -eq 0 ] || { tail -n 60 "$log" >&2; exit "$status"; }
}
trap '[ -z "$job" ] || kill "$job" 2>/dev/null || true' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
mkdir -p "$state"

step "1/4 Packages"
command -v bash >/dev/null || { echo "bash is missing" >&2; exit 1; }
if [ "$(id -u)" -eq 0 ]; then
  watched "$state/packages.log" bash deploy/install.sh --demo
else
  bash deploy/install.sh --demo # sudo may ask for a password.
fi

step "2/4 Build (a few minutes the first time)"
watched "$state/configure.log" cmake --preset release -DSEMAPHORED_TESTS=OFF
watched "$state/build.log" cmake --build --preset release --target semaphored semctl

step "3/4 Start"
daemon_pid=''
service_pid=''
stop() {
  [ -z "$service_pid" ] || kill "$service_pid" 2>/dev/null || true
  if [ -n "$daemon_pid" ] && [ "$keep" = no ]; then
    kill "$daemon_pid" 2>/dev/null || true
    wait "$daemon_pid" 2>/dev/null || true
  fi
}
trap stop EXIT

# Waits until a file has a line, as long as the process lives; at most 20 s.
await_line() { # file, pid, what
  tries=0
  until [ -s "$1" ]; do
    kill -0 "$2" 2>/dev/null || { echo "$3 has ended:" >&2; cat "$state/daemon.log" "$state/service.log" >&2; exit 1; }
    tries=$((tries + 1))
    [ "$tries" -le 200 ] || { echo "$3 did not start in 20 s" >&2; cat "$state/daemon.log" "$state/service.log" >&2; exit 1; }
    sleep 0.1
  done
}

# A build since then has replaced the program that it runs: " (deleted)".
running=''
[ ! -s "$state/daemon.pid" ] || running=$(readlink "/proc/$(cat "$state/daemon.pid")/exe" 2>/dev/null || true)
if [ "${running% (deleted)}" = "$bin/semaphored" ]; then
  echo "The daemon of an earlier run with --keep is still there: it is used."
  keep=yes
else
  rm -f "$state/daemon.out"
  : >"$state/service.log"
  # A daemon that has a page serves it at a port that is free.
  page_setting=''
  if "$bin/semaphored" --print-config | grep -q '^http_listen = '; then page_setting='--http-listen=127.0.0.1:0'; fi
  # shellcheck disable=SC2086  # Nothing, or one word.
  "$bin/semaphored" --store "sqlite://$state/state.db" --listen 127.0.0.1:0 $page_setting \
    >"$state/daemon.out" 2>"$state/daemon.log" &
  daemon_pid=$!
  await_line "$state/daemon.out" "$daemon_pid" "The daemon"
  echo "$daemon_pid" >"$state/daemon.pid"
  grep -oE '127\.0\.0\.1:[0-9]+' "$state/daemon.out" | head -n 1 >"$state/daemon.address"
fi
SEMCTL_SERVER=$(cat "$state/daemon.address")
export SEMCTL_SERVER
echo "semaphored serves on $SEMCTL_SERVER, its state is in $state/state.db"

rm -f "$state/service.port"
python3 deploy/demo/fragile_service.py --port-file "$state/service.port" 2>"$state/service.log" &
service_pid=$!
await_line "$state/service.port" "$service_pid" "The fragile service"
url=http://127.0.0.1:$(cat "$state/service.port")
echo "The fragile service is at $url; it refuses every request beyond four at once."

step "4/4 Forty clients, two hundred requests"
echo "Without semaphored:"
python3 deploy/demo/crowd.py --url "$url" --bare
echo
echo "Each through: semctl run fragile --limit 4 -- curl $url"
result=0
python3 deploy/demo/crowd.py --url "$url" --semctl "$bin/semctl" || result=$?
echo
if [ "$result" -ne 0 ]; then
  echo "That should not have happened. The daemon said:" >&2
  cat "$state/daemon.log" >&2
  exit "$result"
fi
page=$(sed -n 's|.*http at \(http://[^ ]*\).*|\1|p' "$state/daemon.log" | tail -n 1)
if [ "$keep" = yes ]; then
  [ -z "$page" ] || echo "See what it does: $page"
  echo "The daemon goes on. Talk to it:"
  echo "  export SEMCTL_SERVER=$SEMCTL_SERVER"
  echo "  $bin/semctl describe fragile"
  echo "  $bin/semctl run fragile --limit 4 -- sleep 5"
  echo "  kill $(cat "$state/daemon.pid")      # to stop it"
else
  [ -z "$page" ] || echo "The daemon's page was at $page; with --keep it stays there."
  echo "Done. Next: sh deploy/quickstart.sh --keep, and the tour in README.md."
fi
