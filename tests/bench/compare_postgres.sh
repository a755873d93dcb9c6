#!/usr/bin/env bash
# Measures semaphored on Postgres beside what teams do there without it: the recipe with a row for
# each permit, and advisory locks; and beside the daemon's own statements without a daemon. One
# Postgres with fsync on, one disk, all cases in turn. Prints medians, their ratios, and the
# statements and round trips of a cycle.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
exec /usr/bin/python3 "$here/compare_postgres.py" "$@"
