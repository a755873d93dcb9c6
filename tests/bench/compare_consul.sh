#!/usr/bin/env bash
# Measures semaphored on Consul beside what teams do on Consul without it: the recipe's sessions,
# contenders' entries, record with check-and-set and blocking queries, a connection for each client.
# Servers of its own: one for the cases with own keys, one for those with one permit; the cases of
# each in turn. Prints medians and ratios.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
exec /usr/bin/python3 "$here/compare_consul.py" "$@"
