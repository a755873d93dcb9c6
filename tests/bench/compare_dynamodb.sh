#!/usr/bin/env bash
# Measures semaphored on DynamoDB Local beside what that gives without it: conditional transactions of
# as many items, a connection for each client. One DynamoDB Local of its own, in memory, all cases in
# turn. Prints medians and ratios.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
exec /usr/bin/python3 "$here/compare_dynamodb.py" "$@"
