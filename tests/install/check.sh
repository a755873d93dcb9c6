#!/usr/bin/env bash
# check.sh BUILD_DIR BIN_DIR [PREFIX]: installs the build into a folder of its own, unless PREFIX has it installed, builds
# outside/ against nothing but that folder, and runs it against a daemon from BIN_DIR.
set -euo pipefail
build_dir=$1
bin_dir=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
daemon=
finish() {
  if [ -n "$daemon" ]; then kill "$daemon" 2>/dev/null || true; wait "$daemon" 2>/dev/null || true; fi
  rm -rf "$work"
}
trap finish EXIT

prefix=${3:-$work/prefix}
if [ -z "${3:-}" ]; then
  DESTDIR= cmake --install "$build_dir" --prefix "$prefix" >"$work/install.log" || { cat "$work/install.log"; exit 1; }
fi
# A copy, so that no path of the tree can help.
cp -r "$here/outside" "$work/outside"
cmake -S "$work/outside" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Debug \
  -DCMAKE_PREFIX_PATH="$prefix"
cmake --build "$work/build"

if grep -rn "$here" "$prefix" --include='*.cmake' --include='*.h'; then
  echo "the installation names a path of the source tree" >&2
  exit 1
fi

port=$(/usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$bin_dir/semaphored" --store "sqlite://$work/state.db" --listen "127.0.0.1:$port" >"$work/daemon.log" 2>&1 &
daemon=$!
"$work/build/outside" "127.0.0.1:$port" || { cat "$work/daemon.log"; exit 1; }
