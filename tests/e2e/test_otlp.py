"""Spans at a collector of OpenTelemetry: their form, what links them, and a collector that does not do its part."""

import http.server
import json
import queue
import re
import secrets
import socket
import threading
import time
import unittest

from daemon import BOUND_S, Reader, grpc, pb, wait_until
from scraping import Scrape, with_metrics

TRACE_ID = re.compile(r"^[0-9a-f]{32}$")
SPAN_ID = re.compile(r"^[0-9a-f]{16}$")
NUMBER = re.compile(r"^[0-9]+$")
# Of opentelemetry/proto/trace/v1/trace.proto, in the names of its JSON mapping.
SPAN_FIELDS = {"traceId", "spanId", "traceState", "parentSpanId", "flags", "name", "kind", "startTimeUnixNano",
               "endTimeUnixNano", "attributes", "droppedAttributesCount", "events", "droppedEventsCount", "links",
               "droppedLinksCount", "status"}
LINK_FIELDS = {"traceId", "spanId", "traceState", "attributes", "droppedAttributesCount", "flags"}
SERVER = 2


class Collector:
    """Keeps the spans of the requests that it gets."""

    def __init__(self):
        self.requests = []
        self.status = 200
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):  # pylint: disable=invalid-name  http.server's own
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if collector.status == 200:
                    collector.requests.append((self.path, self.headers["Content-Type"], json.loads(body)))
                self.send_response(collector.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):  # pylint: disable=arguments-differ
                pass
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def spans(self, **wanted):
        found = []
        for _, _, body in list(self.requests):
            for resource in body["resourceSpans"]:
                for scope in resource["scopeSpans"]:
                    found += scope["spans"]
        return [span for span in found if all(span.get(key) == value for key, value in wanted.items())]

    def span(self, **wanted):
        wait_until(lambda: self.spans(**wanted), f"a span {wanted}")
        spans = self.spans(**wanted)
        assert len(spans) == 1, spans
        return spans[0]

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def attributes(of):
    return {each["key"]: next(iter(each["value"].values())) for each in of["attributes"]}


def traceparent(trace, span, flags="01"):
    return (("traceparent", f"00-{trace}-{span}-{flags}"),)


class Otlp(unittest.TestCase):

    def setUp(self):
        self.collector = Collector()
        self.addCleanup(self.collector.close)
        self.daemon = self.start(self.collector.endpoint)
        self.client = self.daemon.client()

    def start(self, endpoint):
        daemon = with_metrics(otlp_endpoint=endpoint)
        self.addCleanup(daemon.close)
        return daemon.start()

    def counted(self, result, daemon=None):
        return Scrape((daemon or self.daemon).metrics).value("semaphored_spans_total", result=result)

    def check_form(self, span):
        self.assertLessEqual(set(span), SPAN_FIELDS)
        self.assertRegex(span["traceId"], TRACE_ID)
        self.assertRegex(span["spanId"], SPAN_ID)
        self.assertEqual(span["kind"], SERVER)
        for key in ("startTimeUnixNano", "endTimeUnixNano"):
            self.assertIsInstance(span[key], str)
            self.assertRegex(span[key], NUMBER)
        self.assertLessEqual(int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"]))
        self.assertLess(abs(int(span["endTimeUnixNano"]) / 1e9 - time.time()), 60)
        for link in span.get("links", []):
            self.assertLessEqual(set(link), LINK_FIELDS)

    def test_a_hand_off(self):
        holder, waiter = secrets.token_hex(16), secrets.token_hex(16)
        first = self.client.stub.Acquire(
            self.client.acquire_request("team/db", limit=1, holder="one"),
            metadata=traceparent(holder, "00000000000000aa"), timeout=BOUND_S).lease
        waiting = self.client.stub.Acquire.future(
            self.client.acquire_request("team/db", holder="two", wait_forever=True),
            metadata=traceparent(waiter, "00000000000000bb"), timeout=BOUND_S)
        self.client.wait_for_queue("team/db", 1)
        self.client.release(first.lease_id)
        second = waiting.result(BOUND_S).lease
        self.client.release(second.lease_id)
        hold = self.collector.span(name="hold", traceId=holder)
        wait = self.collector.span(name="wait", traceId=waiter)
        for span in self.collector.spans():
            self.check_form(span)
        self.assertEqual(hold["parentSpanId"], "00000000000000aa")
        self.assertEqual(wait["parentSpanId"], "00000000000000bb")
        self.assertEqual([(link["traceId"], link["spanId"]) for link in wait["links"]],
                         [(holder, hold["spanId"])])
        self.assertEqual(attributes(wait), {
            "semaphored.semaphore": "team/db", "semaphored.outcome": "GRANTED", "semaphored.holder": "two",
            "semaphored.permits": "1", "semaphored.token": str(second.token)})
        self.assertNotIn("links", self.collector.span(name="wait", traceId=holder))
        self.assertEqual(self.collector.span(name="hold", traceId=waiter)["status"], {})
        path, kind, body = self.collector.requests[0]
        self.assertEqual((path, kind), ("/v1/traces", "application/json"))
        resource = attributes(body["resourceSpans"][0]["resource"])
        self.assertEqual(resource["service.name"], "semaphored")
        self.assertEqual(resource["service.instance.id"], "e2e")
        self.assertNotIn(first.lease_id, json.dumps(body))

    def test_refused_not_sampled_and_without_a_trace(self):
        trace, quiet = secrets.token_hex(16), secrets.token_hex(16)
        self.client.acquire("own", limit=1)
        with self.assertRaises(grpc.RpcError):
            self.client.stub.Acquire(self.client.acquire_request("own"),
                                     metadata=traceparent(trace, "00000000000000cc"), timeout=BOUND_S)
        self.client.stub.Acquire(self.client.acquire_request("quiet", limit=1),
                                 metadata=traceparent(quiet, "00000000000000dd", "00"), timeout=BOUND_S)
        refused = self.collector.span(name="wait", traceId=trace)
        self.assertEqual(refused["status"], {"code": 2, "message": "FULL"})
        own = [span for span in self.collector.spans(name="wait")
               if attributes(span)["semaphored.semaphore"] == "own" and "parentSpanId" not in span]
        self.assertEqual(len(own), 1)
        self.daemon.terminate()  # What waits is sent before the daemon ends.
        self.assertEqual(self.collector.spans(traceId=quiet), [])

    def test_sessions(self):
        trace = secrets.token_hex(16)
        requests = queue.Queue()
        requests.put(pb.SessionRequest(open=pb.OpenSession(client_id=self.client.client_id)))
        reader = Reader(self.client.stub.Session(iter(requests.get, None),
                                                 metadata=traceparent(trace, "00000000000000ee")))
        requests.put(pb.SessionRequest(commands=[pb.SessionCommand(
            sequence=1, acquire=pb.SessionAcquire(semaphore="team/db", limit=1))]))
        reader.until(lambda message: message.results, "it is granted")
        requests.put(pb.SessionRequest(close=True))
        self.assertEqual(self.collector.span(name="hold", traceId=trace)["parentSpanId"], "00000000000000ee")
        requests.put(None)

    def test_an_endpoint_with_its_path(self):
        daemon = self.start(self.collector.endpoint + "/v1/traces/")
        daemon.client().release(daemon.client().acquire("own", limit=1).lease_id)
        self.collector.span(name="hold")
        self.assertEqual({path for path, _, _ in self.collector.requests}, {"/v1/traces"})

    def test_what_waits_is_sent_at_the_end(self):
        trace = secrets.token_hex(16)
        self.client.stub.Acquire(self.client.acquire_request("x", limit=1),
                                 metadata=traceparent(trace, "00000000000000aa"), timeout=BOUND_S)
        self.assertEqual(self.daemon.terminate(), 0)
        self.assertEqual(len(self.collector.spans(name="wait", traceId=trace)), 1)

    def test_a_collector_that_refuses(self):
        self.collector.status = 400
        self.client.acquire("x", limit=1)
        wait_until(lambda: self.counted("dropped") >= 1, "it is counted as dropped")
        self.daemon.wait_log("spans were dropped: the collector answered 400")
        self.collector.status = 200
        self.client.acquire("y", limit=1)
        wait_until(lambda: self.counted("sent") >= 1, "the next is sent")

    def test_a_collector_that_hangs(self):
        listener = socket.create_server(("127.0.0.1", 0))  # Takes connections, and never answers.
        self.addCleanup(listener.close)
        daemon = self.start(f"http://127.0.0.1:{listener.getsockname()[1]}")
        client = daemon.client()
        client.acquire("x", limit=100_000)
        longest = 0.0
        until = time.monotonic() + 6
        while time.monotonic() < until:
            begun = time.monotonic()
            client.release(client.acquire("x").lease_id)
            longest = max(longest, time.monotonic() - begun)
        self.assertLess(longest, 2.0)
        wait_until(lambda: self.counted("dropped", daemon) > 0, "spans are dropped")
        begun = time.monotonic()
        self.assertEqual(daemon.terminate(), 0)
        self.assertLess(time.monotonic() - begun, 15)

    def test_off_by_default(self):
        with with_metrics() as daemon:
            daemon.client().acquire("x", limit=1)
            self.assertEqual(self.counted("sent", daemon), 0)
            self.assertEqual(self.counted("dropped", daemon), 0)


if __name__ == "__main__":
    unittest.main()
