"""Hold and Watch as server-sent events."""

import json
import socket
import unittest

from daemon import BOUND_S, pb, wait_until
from http_client import Events, HttpDaemon, error_info


class Streams(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = HttpDaemon().start()
        cls.addClassCleanup(cls.daemon.close)

    def hold(self, semaphore, **fields):
        acquire = {"semaphore": semaphore, "limit": 1, "waitForever": True,
                   "ttlMs": 3000, **fields.pop("acquire", {})}
        return Events(self.daemon, "POST", "/v1/hold", {"acquire": acquire, **fields})

    def test_holds_while_it_reads(self):
        client = self.daemon.client()
        with self.hold("hold/a") as events:
            self.assertEqual(200, events.answer.status)
            self.assertEqual("text/event-stream", events.answer.headers["Content-Type"])
            lease = events.until("granted")["granted"]["lease"]
            for _ in range(2):
                self.assertIn("validForMs", events.until("beat")["beat"])
            self.assertEqual(1, client.describe("hold/a").held)
            with self.hold("hold/a") as second:
                queued = second.until("queued")["queued"]
                self.assertEqual("1", str(queued["position"]))
                self.daemon.done("Release", {"leaseId": lease["leaseId"]})
                self.assertEqual(lease["leaseId"], events.until("lost")["lost"]["leaseId"])
                self.assertEqual(("end", {}), events.next())
                self.assertIsNone(events.next())
                second.until("granted")

    def test_a_client_that_goes(self):
        client = self.daemon.client()
        with self.hold("hold/b", releaseOnDisconnect=True) as events:
            events.until("granted")
            waiting = self.hold("hold/b")
            waiting.until("queued")
            waiting.close()
            client.wait_for_queue("hold/b", 0)
        wait_until(lambda: client.describe("hold/b").held == 0, "the permit is given back at once")
        with self.hold("hold/b") as events:
            events.until("granted")
        self.assertEqual(1, client.describe("hold/b").held)  # For its TTL.
        wait_until(lambda: client.describe("hold/b").held == 0, "the lease has expired")

    def test_refused_before_the_first_event(self):
        with self.hold("hold/c") as events:
            events.until("granted")
            for request, status, reason in [
                    ({"acquire": {"semaphore": "hold/c"}}, 429, "FULL"),
                    ({"acquire": {"semaphore": "hold/none"}}, 404, "NO_SUCH_SEMAPHORE"),
                    ({"acquire": {"semaphore": "hold/c"}, "beatIntervalMs": 1}, 400, "INVALID_FIELD"),
                    ({"acquired": {}}, 400, "INVALID_FIELD")]:
                with Events(self.daemon, "POST", "/v1/hold", request) as refused:
                    self.assertEqual(status, refused.answer.status)
                    error = json.loads(refused.answer.read())
                    self.assertEqual(reason, error_info(error)["reason"])

    def test_watches(self):
        daemon = self.daemon
        daemon.done("Acquire", {"semaphore": "watch/a", "limit": 2})
        with Events(daemon, "GET", "/v1/watch?prefix=watch%2F") as events:
            self.assertEqual("watch/a", events.until("snapshot")["semaphore"]["semaphore"])
            daemon.done("Acquire", {"semaphore": "watch/a"})
            granted = events.until("granted")
            self.assertEqual(2, granted["semaphore"]["held"])
        with Events(daemon, "POST", "/v1/watch", {"semaphore": "watch/new"}) as events:
            self.assertEqual(200, events.answer.status)  # Although there is nothing yet.
            daemon.done("Acquire", {"semaphore": "watch/new", "limit": 1})
            self.assertEqual("watch/new", events.until("created")["semaphore"]["semaphore"])
        for query in ("?prefx=a", "?prefix=%zz", "?prefix=a&semaphore=b"):
            status, _, text = daemon.ask("GET", "/v1/watch" + query)
            self.assertEqual((400, "invalid_argument"), (status, json.loads(text)["code"]))

    def test_many_semaphores(self):
        for number in range(300):
            self.daemon.client().administer(f"many/{number}", **_create())
        with Events(self.daemon, "GET", "/v1/watch?prefix=many/") as events:
            names = {events.until("snapshot")["semaphore"]["semaphore"] for _ in range(300)}
        self.assertEqual(300, len(names))

    def test_a_reader_that_does_not_read(self):
        """It is ended by the daemon's bounds, and costs no more than these."""
        with HttpDaemon({"watch_events_max": 100, "keepalive_interval": "1s",
                         "keepalive_timeout": "1s"}) as daemon:
            with socket.create_connection(("127.0.0.1", daemon.http_port), BOUND_S) as slow:
                slow.sendall(b"GET /v1/watch HTTP/1.1\r\nHost: localhost\r\n\r\n")
                client = daemon.client()
                client.administer("s", **_create())
                streams = _streams(daemon)
                self.assertEqual(1, streams())
                wait_until(lambda: [client.acquire("s", limit=1000000) for _ in range(200)]
                           and streams() == 0, "the stream has ended")

    def test_the_daemon_stops(self):
        with HttpDaemon() as daemon:
            with Events(daemon, "GET", "/v1/watch") as watch, Events(
                    daemon, "POST", "/v1/hold", {"acquire": {"semaphore": "s", "limit": 1}}) as hold:
                hold.until("granted")
                self.assertEqual(200, watch.answer.status)
                self.assertEqual(0, daemon.terminate())
                self.assertEqual("unavailable", hold.until("error")["code"])
                self.assertIsNone(hold.next())
                self.assertEqual("unavailable", watch.until("error")["code"])


def _create():
    return {"create": pb.CreateSemaphore(limit=1000000)}


def _streams(daemon):
    """How many connections HTTP has, by the system's list."""
    def count():
        port = f"{daemon.http_port:04X}"
        with open("/proc/net/tcp", encoding="ascii") as file:
            return sum(line.split()[1].endswith(":" + port) and line.split()[3] == "01"
                       for line in file)
    return count


if __name__ == "__main__":
    unittest.main()
