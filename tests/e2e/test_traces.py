"""A traceparent that came with a call is in the log lines about it."""

import json
import os
import queue
import secrets
import unittest

from daemon import BOUND_S, Daemon, Session, grpc, pb, wait_until

TRACE = secrets.token_hex(16)


def traced(span):
    return (("traceparent", f"00-{TRACE}-{span}-01"),)


class Traces(unittest.TestCase):

    def lines(self, daemon):
        return [json.loads(line) for line in daemon.log().splitlines() if line.startswith("{")]

    def line(self, daemon, begin, span):
        def found():
            return [line for line in self.lines(daemon)
                    if line["message"].startswith(begin) and line.get("span_id") == span]
        lines = wait_until(found, f"a line '{begin}' of {span}")
        self.assertEqual(lines[0]["trace_id"], TRACE)
        return lines[0]

    def test_unary_calls(self):
        with Daemon({"log_format": "json", "log_level": "debug"}) as daemon:
            client = daemon.client()
            spans = {name: secrets.token_hex(8) for name in
                     ("acquire", "full", "bad", "resize", "revoke", "hold")}
            lease = client.stub.Acquire(client.acquire_request("team/db", limit=1, holder="me"),
                                        metadata=traced(spans["acquire"]), timeout=BOUND_S).lease
            granted = self.line(daemon, "granted", spans["acquire"])
            self.assertEqual(granted["level"], "debug")
            self.assertIn("semaphore 'team/db'", granted["message"])
            with self.assertRaises(grpc.RpcError):
                client.stub.Acquire(client.acquire_request("team/db", limit=1),
                                    metadata=traced(spans["full"]), timeout=BOUND_S)
            self.assertIn("RESOURCE_EXHAUSTED FULL",
                          self.line(daemon, "refused: Acquire", spans["full"])["message"])
            with self.assertRaises(grpc.RpcError):
                client.stub.Renew(pb.RenewRequest(lease_id="?"), metadata=traced(spans["bad"]),
                                  timeout=BOUND_S)
            self.line(daemon, "refused: Renew: INVALID_ARGUMENT", spans["bad"])
            resize = pb.AdministerRequest(semaphore="team/db", resize=pb.ResizeSemaphore(limit=2))
            client.stub.Administer(resize, metadata=traced(spans["resize"]), timeout=BOUND_S)
            self.assertEqual(self.line(daemon, "administered", spans["resize"])["message"],
                             "administered: resize, semaphore 'team/db'")
            revoke = pb.AdministerRequest(semaphore="team/db",
                                          revoke=pb.RevokeLeases(lease_id=lease.lease_id, now=True))
            client.stub.Administer(revoke, metadata=traced(spans["revoke"]), timeout=BOUND_S)
            self.line(daemon, "administered: revoke", spans["revoke"])
            # The lease's end belongs to the call that asked for the lease.
            lost = self.line(daemon, "lost", spans["acquire"])
            self.assertEqual(lost["level"], "warning")
            self.assertIn("revoked", lost["message"])
            self.assertNotIn(lease.lease_id.rsplit("/", 1)[-1], daemon.log())

    def test_streams_and_tickets(self):
        with Daemon({"log_format": "json", "log_level": "debug"}) as daemon:
            client = daemon.client()
            client.stub.Enqueue(pb.EnqueueRequest(semaphore="deploy", limit=1, payload=b"x"),
                                metadata=traced("00000000000000aa"), timeout=BOUND_S)
            requests = queue.Queue()
            requests.put(pb.WorkRequest(open=pb.OpenWork(
                client_id="w", semaphores=["deploy"], tickets_max=1)))
            work = client.stub.Work(iter(requests.get, None), timeout=BOUND_S)
            for message in work:
                if message.assignments:
                    self.assertIn("00000000000000aa", message.assignments[0].traceparent)
                    break
            self.line(daemon, "granted: semaphore 'deploy'", "00000000000000aa")
            requests.put(None)
            work.cancel()

            metadata = traced("00000000000000bb")
            original = client.stub.Session
            client.stub.Session = lambda requests: original(requests, metadata=metadata)
            session = Session(client)
            session.opened()
            session.command(1, acquire=pb.SessionAcquire(semaphore="s", limit=1))
            session.command(2, acquire=pb.SessionAcquire(semaphore="s", limit=1))
            self.assertTrue(session.result(2).HasField("error"))
            self.line(daemon, "granted: semaphore 's'", "00000000000000bb")
            self.line(daemon, "refused: Session: RESOURCE_EXHAUSTED FULL", "00000000000000bb")

    def test_as_text_and_without(self):
        with Daemon({"log_level": "debug"}) as daemon:
            client = daemon.client()
            client.stub.Acquire(client.acquire_request("a", limit=1), timeout=BOUND_S,
                                metadata=traced("00000000000000cc"))
            wait_until(lambda: f"trace_id={TRACE} span_id=00000000000000cc\n" in daemon.log(),
                       "the line with its trace")
            for wrong in ("nonsense", f"00-{TRACE}-{'0' * 16}-01", f"ff-{TRACE}-{'1' * 16}-01",
                          f"00-{TRACE.upper()}X-{'1' * 16}-01"):
                client.stub.Acquire(client.acquire_request("b" + os.urandom(4).hex(), limit=1),
                                    timeout=BOUND_S, metadata=(("traceparent", wrong),))
            self.assertEqual(daemon.log().count("trace_id"), 1)


if __name__ == "__main__":
    unittest.main()
