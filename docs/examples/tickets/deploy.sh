#!/bin/bash
# A command for `semctl work` whose effect happens once, although its ticket may be delivered more
# than once:
#
#   TARGET=/srv/target semctl work 'deploy/*' -- docs/examples/tickets/deploy.sh
#
# A worker may be paused for so long that its lease is lost and another one has begun the next
# attempt. So the target, here a folder that several machines may share, keeps the highest token that
# it has seen for each slot, and rejects a worker with a lower one; and it keeps which tickets it
# has carried out, for an attempt that got so far and could not say so any more.
set -eu
target=${TARGET:?the folder that is deployed to}
semaphore=${SEMAPHORE_NAME//\//_}
request=$(cat)

# What an attempt prepares may be done twice.
plan="deploy $request"

# What counts is done under the target's own lock, in one go.
exec 9>>"$target/$semaphore.lock"
flock 9
highest=$(cat "$target/$semaphore.$SEMAPHORE_SLOT.token" 2>/dev/null || echo 0)
if ((SEMAPHORE_TOKEN < highest)); then
  echo "overtaken: token $SEMAPHORE_TOKEN, but $highest has been here" >&2
  exit 75  # Failed; another attempt is under way.
fi
echo "$SEMAPHORE_TOKEN" >"$target/$semaphore.$SEMAPHORE_SLOT.token"
if grep -qs "^$SEMAPHORE_TICKET " "$target/$semaphore.done"; then
  exit 0  # An earlier attempt has done it.
fi
case $request in
  *bad*) echo "not to be deployed: $request" >&2; exit 65 ;;  # Rejected: no attempt could do it.
esac
echo "$SEMAPHORE_TICKET $SEMAPHORE_TOKEN $plan" >>"$target/$semaphore.done"
