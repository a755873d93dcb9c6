"""Takes permits with the Python client, one after the other, and writes down when it is inside; as
worker.mjs beside it.

Usage: worker.py ADDRESS[,ADDRESS...] NAME LIMIT LOGFILE SECONDS
"""

import os
import random
import sys
import time

import semaphored


def main():
    addresses, name, limit, log_file, seconds = sys.argv[1:]
    log = os.open(log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(what):
        os.write(log, f"{what} {os.getpid()} {time.monotonic_ns()}\n".encode())
    ends_at = time.monotonic() + float(seconds)
    ttl = int(os.environ.get("WORKER_TTL_MS", "2000")) / 1000
    with semaphored.Client(addresses.split(","), ttl=ttl) as client:
        while time.monotonic() < ends_at:
            try:
                with client.permit(name, limit=int(limit), wait=1.0) as permit:
                    if permit.held:
                        note("enter")
                        permit.lost.wait(random.uniform(0.005, 0.025))
                        note("exit")
            except (semaphored.DeadlineExceededError, semaphored.UnavailableError,
                    semaphored.LostError):
                pass


main()
