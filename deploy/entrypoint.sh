#!/bin/sh
# The image's first program. Other machines can reach the daemon there, so it serves no client without a token: if the
# image's own access file is in force and does not exist yet, this makes one, with a token of one identity that may do
# everything. Then it becomes the daemon.
set -eu

volume=/var/lib/semaphored
first=${1:---}
# A subcommand (semaphored token, restore …) starts no daemon.
if [ "${first#-}" != "$first" ] && [ "${SEMAPHORED_ACCESS_FILE:-}" = "$volume/access.toml" ] &&
  ! [ -e "$volume/access.toml" ]; then
  umask 077
  made=$(semaphored token)
  # The access file is renamed into its place last: a first run that was cut off is done again as a whole.
  printf '%s\n' "$made" | head -n 1 >"$volume/token"
  cat >"$volume/access.toml.new" <<TEXT
# Made by the first run. docs/security.md says what can stand here; it is read again when it has changed.
[identities.admin]
tokens = ["$(printf '%s\n' "$made" | tail -n 1)"]
rules = [{ prefixes = [""], verbs = ["acquire", "verify", "work", "administer"] }]
TEXT
  sync "$volume/token" "$volume/access.toml.new"
  mv "$volume/access.toml.new" "$volume/access.toml"
  echo "first run: clients need the token in $volume/token" >&2
fi
exec semaphored "$@"
