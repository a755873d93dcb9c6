"""Makes docs/images/page.png: the page of a real daemon, with semaphores as a team has them.

    SEMAPHORED_BIN_DIR=build/release/bin SEMAPHORED_STUBS_DIR=build/release/python_stubs \\
        /usr/bin/python3 -B tests/page/picture.py [light|dark] [FILE]
"""

import math
import os
import random
import sys
import time
from urllib.parse import quote

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from browser import Browser  # noqa: E402
from scenery import TTL_MS, page_daemon, page_url, pb, wait_until  # noqa: E402

SHOWN = "ci/build-linux"
OTHERS = {"ci/build-macos": 4, "ci/deploy-production": 1, "db/orders-writer": 1, "db/reporting": 6, "gpu/a100": 8,
          "gpu/l4": 16, "payments/settlement": 2, "search/reindex": 1, "backup/nightly": 2, "etl/daily": 4,
          "partner/acme-api": 10, "partner/globex-api": 5, "licences/matlab": 12, "render/thumbnails": 32}
SECONDS = 150


def holder(at):
    return f"runner-{at % 12:02d}.ci.example/job-{48211 + at * 7}"


def populate(client, random_):
    for name, limit in OTHERS.items():
        client.administer(name, create=pb.CreateSemaphore(limit=limit))
        for at in range(random_.randint(0, limit)):
            client.acquire(name, ttl_ms=TTL_MS, holder=holder(at))
    waits = []
    for name, count in (("ci/deploy-production", 3), ("db/orders-writer", 7), ("licences/matlab", 1)):
        waits += [client.acquire_later(name, holder=holder(at), permits=1) for at in range(count)]
    client.administer("backup/nightly", pause=pb.PauseSemaphore())
    return waits


class Crowd:
    """Jobs of several sizes that come and go at one semaphore."""

    def __init__(self, client, random_):
        self.client, self.random = client, random_
        self.leases, self.waits = [], []
        self.count = 0

    def come(self, permits=1, priority=0):
        self.count += 1
        self.waits.append(self.client.acquire_later(SHOWN, permits=permits, priority=priority, holder=holder(self.count),
                                                    ttl_ms=TTL_MS))

    def settle(self):
        """Takes note of those that were let in."""
        for wait in [each for each in self.waits if each.done()]:
            self.waits.remove(wait)
            self.leases.append(wait.result().lease)

    def leave(self):
        self.settle()
        if len(self.leases) > 5:  # The first ones stay.
            self.client.release(self.leases.pop(self.random.randrange(5, len(self.leases))).lease_id)

    def wait_for(self, held, waiting):
        def stands():
            info = self.client.describe(SHOWN)
            return (info.held, info.waiting) == (held, waiting)
        wait_until(stands, f"{held} held and {waiting} waiting")
        self.settle()


def live(client, random_, seconds):
    """More jobs come than go, and then fewer, and so on; at last a large one waits, and others behind it."""
    crowd = Crowd(client, random_)
    begun = time.monotonic()
    while (passed := time.monotonic() - begun) < seconds:
        busy = 0.44 + 0.3 * math.sin(passed / seconds * 4 * math.pi)
        if random_.random() < busy:
            crowd.come(random_.choice([1, 1, 1, 2]))
        if random_.random() < 1 - busy:
            crowd.leave()
        time.sleep(0.25)
    for wait in crowd.waits:
        wait.cancel()
    crowd.waits.clear()
    wait_until(lambda: client.waiting(SHOWN) == 0, "those that waited have gone")
    held = client.describe(SHOWN).held
    while held < 22:
        crowd.come()
        held += 1
        crowd.wait_for(held, 0)
    while held > 22:
        crowd.leave()
        held = client.describe(SHOWN).held
    for count, (permits, priority) in enumerate(((4, 10), (1, 5), (2, 5), (1, 0), (1, 0), (2, 0)), 1):
        crowd.come(permits, priority)
        client.wait_for_queue(SHOWN, count)
        time.sleep(1.3)
    return crowd.waits


def main():
    scheme = sys.argv[1] if len(sys.argv) > 1 else "light"
    path = sys.argv[2] if len(sys.argv) > 2 else "docs/images/page.png"
    random_ = random.Random(7)
    with page_daemon(node_id="db1") as daemon, Browser() as browser:
        client = daemon.client()
        client.administer(SHOWN, create=pb.CreateSemaphore(limit=24))
        waits = populate(client, random_)
        waits += live(client, random_, SECONDS)
        browser.set_scheme(scheme)
        browser.set_size(1180, 860)
        browser.go(f"{page_url(daemon)}/#/s/{quote(SHOWN, safe='')}")
        browser.wait_text("#why", "asks for 4 permits")
        wait_until(lambda: browser.text("#age") == "live", "it is live")
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        with open(path, "wb") as file:
            file.write(browser.screenshot())
        for wait in waits:
            wait.cancel()
    print(f"{path}: {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main()
