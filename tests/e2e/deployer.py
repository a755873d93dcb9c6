"""The command of the pipeline's workers: carries out one deployment. Its payload is JSON; everything
that it does it records in the folder that PIPELINE names, with the time of the machine's steady
clock, so that it can be seen afterwards who was at work when.

  ENVIRONMENT.runs    a line for each event: enter, effect, exit
  ENVIRONMENT.done    what the target has taken in, each ticket once
  beats/              the last sign of life of each run
"""

import fcntl
import json
import os
import sys
import time

FAILED = 75


def write_line(path, line):
    """In one piece: several write at once, and any of them may be killed."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(handle, (json.dumps(line) + "\n").encode())
    os.close(handle)


class Run:
    def __init__(self):
        self.folder = os.environ["PIPELINE"]
        self.request = json.load(sys.stdin)
        self.place = os.path.join(self.folder, self.request["environment"])
        self.ticket = os.environ["SEMAPHORE_TICKET"]
        self.token = int(os.environ["SEMAPHORE_TOKEN"])
        self.slot = os.environ["SEMAPHORE_SLOT"]
        self.beats = os.path.join(self.folder, "beats", f"{self.ticket}-{self.token}")

    def record(self, event):
        write_line(self.place + ".runs", {
            "event": event, "number": self.request["number"], "ticket": self.ticket,
            "token": self.token, "attempt": int(os.environ["SEMAPHORE_ATTEMPT"]),
            "at": time.monotonic()})

    def work(self):
        until = time.monotonic() + self.request["work_ms"] / 1000
        while True:
            now = time.monotonic()
            with open(self.beats, "w", encoding="ascii") as beat:
                beat.write(repr(now))
            if now >= until:
                return
            time.sleep(0.005)

    def take_effect(self):
        """The target: turns away who was overtaken, and remembers what it has taken in."""
        with open(self.place + ".lock", "a", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            highest_path = f"{self.place}.{self.slot}.token"
            highest = 0
            if os.path.exists(highest_path):
                with open(highest_path, encoding="ascii") as file:
                    highest = int(file.read())
            if self.token < highest:
                return False
            with open(highest_path + ".new", "w", encoding="ascii") as file:
                file.write(str(self.token))
            os.rename(highest_path + ".new", highest_path)
            if not self.is_done():
                write_line(self.place + ".done", {
                    "number": self.request["number"], "ticket": self.ticket, "token": self.token})
            return True

    def is_done(self):
        if not os.path.exists(self.place + ".done"):
            return False
        with open(self.place + ".done", encoding="ascii") as file:
            return any(json.loads(line)["ticket"] == self.ticket for line in file)

    def main(self):
        self.record("enter")
        self.work()
        mended = os.path.exists(os.path.join(self.folder, "mended"))
        done = (mended or not self.request["broken"]) and self.take_effect()
        self.record("exit")
        return 0 if done else FAILED


if __name__ == "__main__":
    sys.exit(Run().main())
