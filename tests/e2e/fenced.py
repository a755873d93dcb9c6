"""A resource that is worked on under permits: one counter for each slot, in a file of its own,
which remembers the highest token that it has seen and turns away lower ones. Any process may use
it."""

import contextlib
import fcntl
import glob
import json
import os

from checker import Touch


class Stale(Exception):
    """The token is lower than one that the resource has seen."""


class Resource:

    def __init__(self, folder):
        self.folder = folder

    def read(self, slot, token):
        """What write() wants. Raises Stale."""
        return self._touch(slot, token, None)

    def write(self, slot, token, seen):
        """Puts down one more than was read: loses updates, if two were let in. Raises Stale."""
        self._touch(slot, token, seen)

    def touches(self):
        """All that was done, for each slot in order."""
        found = []
        for path in sorted(glob.glob(os.path.join(self.folder, "slot-*"))):
            with open(path, encoding="ascii") as file:
                # A line that is being written has no end yet.
                found += [Touch(**json.loads(line)) for line in file if line.endswith("\n")]
        return found

    def writes(self):
        return sum(1 for touch in self.touches() if touch.write)

    def highest_token(self, slot):
        return max((touch.token for touch in self.touches() if touch.slot == slot), default=0)

    def _touch(self, slot, token, seen):
        with self._locked(slot) as file:
            touches = [json.loads(line) for line in file]
            value, unchecked, highest = 0, 0, 0
            for touch in touches:
                highest = max(highest, touch["token"])
                if touch["write"]:
                    unchecked = touch["unchecked"]
                    value = touch["value"] if touch["accepted"] else value
            if seen is not None:
                value, unchecked = seen[0] + 1, seen[1] + 1
            accepted = token >= highest
            file.write(json.dumps({"slot": slot, "token": token, "write": seen is not None,
                                   "accepted": accepted, "value": value,
                                   "unchecked": unchecked}) + "\n")
        if not accepted:
            raise Stale(f"slot {slot} has seen {highest}, this is {token}")
        return value, unchecked

    @contextlib.contextmanager
    def _locked(self, slot):
        with open(os.path.join(self.folder, f"slot-{slot}"), "a+", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            yield file
