"""Makes docs/images/page.png: the page of a real daemon, with semaphores as a team has them.

    SEMAPHORED_BIN_DIR=build/release/bin SEMAPHORED_STUBS_DIR=build/release/python_stubs \\
        /usr/bin/python3 -B tests/page/picture.py [light|dark] [FILE]
"""

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
SECONDS = 45


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


def live(client, random_, seconds):
    """A queue that moves: jobs of several sizes come and go, faster than they are served at last."""
    leases, waits = [], []
    until = time.monotonic() + seconds
    at = 0
    while time.monotonic() < until:
        at += 1
        if len(leases) < 13 or (random_.random() < 0.5 and len(leases) < 19):
            call = client.acquire_later(SHOWN, permits=random_.choice([1, 1, 1, 2]), holder=holder(at), ttl_ms=TTL_MS)
            try:
                leases.append(call.result(timeout=0.4).lease)
            except Exception:  # pylint: disable=broad-except  it waits, and is let in later
                call.cancel()
        if leases and random_.random() < 0.6:
            client.release(leases.pop(random_.randrange(len(leases))).lease_id)
        time.sleep(0.8)
    while True:
        call = client.acquire_later(SHOWN, holder=holder(at), ttl_ms=TTL_MS)
        at += 1
        try:
            leases.append(call.result(timeout=0.4).lease)
        except Exception:  # pylint: disable=broad-except
            waits.append(call)
            break
    for lease in leases[4:7]:
        client.release(lease.lease_id)
    client.wait_for_queue(SHOWN, 0)
    for permits, priority in ((4, 10), (1, 5), (2, 5), (1, 0), (1, 0), (2, 0)):
        at += 1
        waits.append(client.acquire_later(SHOWN, permits=permits, priority=priority, holder=holder(at)))
        wait_until(lambda count=len(waits) - 1: client.waiting(SHOWN) == count, "it waits")
        time.sleep(1.3)
    return waits


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
