#!/usr/bin/env bash
# Measures semaphored on RabbitMQ beside what RabbitMQ gives without it: consumers straight on
# librabbitmq, a connection each, that pass the tokens of one queue. One broker of its own, all cases
# in turn. Prints medians, ratios and differences.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
exec /usr/bin/python3 "$here/compare_rabbitmq.py" "$@"
