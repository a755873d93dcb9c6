"""Recalls over real streams, of a daemon that is the test's own: the client acknowledges what the
application knows of, and nothing else."""

import asyncio
import concurrent.futures
import queue
import threading
import time
import unittest

import grpc
import semaphored
from semaphored import aio
from semaphored.v1 import semaphore_pb2 as pb
from semaphored.v1 import semaphore_pb2_grpc as pb_grpc

from real import BOUND_S, wait_until

TTL_MS = 4_000
VALIDITY = pb.LeaseValidity(valid_for_ms=TTL_MS, epoch=1)


class RecallingDaemon(pb_grpc.SemaphoreServiceServicer):
    """Grants L1 to each acquire; answers pings; recalls when it is asked to; notes the rest."""

    def __init__(self):
        self.pings = 0
        self.acknowledged = []
        self._to_send = None  # of the last stream

    def recall(self):
        self._to_send.put(pb.SessionResponse(events=[pb.SessionEvent(recalled=pb.LeaseRecalled(
            lease_id="L1",
            recall=pb.LeaseRecall(grace_ms=600_000, reason="resized", recall_id=17)))]))

    def Session(self, requests, context):
        to_send = self._to_send = queue.Queue()
        threading.Thread(target=self._read, args=(requests, to_send), daemon=True).start()
        yield from iter(to_send.get, None)

    def _read(self, requests, to_send):
        try:
            for request in requests:
                self._answer(request, to_send)
        except grpc.RpcError:
            pass
        to_send.put(None)

    def _answer(self, request, to_send):
        if request.HasField("open"):
            to_send.put(pb.SessionResponse(opened=pb.SessionOpened(
                session_id="s1", ttl_ms=TTL_MS, validity=VALIDITY)))
        for command in request.commands:
            result = pb.SessionResult(sequence=command.sequence)
            if command.HasField("acquire"):
                result.granted.CopyFrom(pb.Lease(lease_id="L1", semaphore="db", token=1))
            else:
                result.released.released = 1
            to_send.put(pb.SessionResponse(results=[result]))
        self.acknowledged += [(each.lease_id, each.recall_id)
                              for each in request.acknowledged_recalls]
        if request.HasField("ping"):
            self.pings += 1
            to_send.put(pb.SessionResponse(pong=pb.SessionPong(
                ping_id=request.ping.ping_id, validity=VALIDITY)))
        if request.close:
            to_send.put(None)

    def wait_for_pings(self, count):
        before = self.pings
        wait_until(lambda: self.pings >= before + count, "pings")


def serve(test):
    daemon = RecallingDaemon()
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
    pb_grpc.add_SemaphoreServiceServicer_to_server(daemon, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    test.addCleanup(lambda: server.stop(None).wait())
    return daemon, f"127.0.0.1:{port}"


class Recalls(unittest.TestCase):

    def setUp(self):
        self.daemon, self.address = serve(self)

    def client(self):
        client = semaphored.Client(self.address)
        self.addCleanup(client.close)
        return client

    def test_acknowledged_when_the_handler_has_returned(self):
        entered, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)

        def handle(recall):
            self.assertEqual((recall.grace, recall.reason), (600, "resized"))
            entered.set()
            go_on.wait()
        with self.client().permit("db", on_recall=handle) as permit:
            self.daemon.recall()
            self.assertTrue(entered.wait(BOUND_S))
            self.daemon.wait_for_pings(3)
            self.assertEqual(self.daemon.acknowledged, [])
            go_on.set()
            wait_until(lambda: self.daemon.acknowledged, "the acknowledgement")
            self.assertEqual(self.daemon.acknowledged, [("L1", 17)])
            permit.check()

    def test_not_without_a_handler_nor_by_one_that_raises(self):
        def fail(_):
            raise KeyError("of the handler")
        with self.assertLogs("semaphored") as logged:
            with self.client().permit("db", on_recall=fail) as permit:
                self.daemon.recall()
                self.daemon.wait_for_pings(3)
                wait_until(lambda: logged.output, "the handler's error")
                self.assertIsNotNone(permit.recall)
        with self.client().permit("db") as permit:
            self.daemon.recall()
            wait_until(lambda: permit.recall, "the recall")
            self.daemon.wait_for_pings(3)
        self.assertEqual(self.daemon.acknowledged, [])


class RecallsInALoop(unittest.IsolatedAsyncioTestCase):

    async def test_a_loop_that_blocks_acknowledges_nothing_and_loses_nothing(self):
        daemon, address = serve(self)
        recalls = []
        async with aio.Client(address) as client:
            async with client.permit("db", on_recall=recalls.append) as permit:
                daemon.recall()
                daemon.wait_for_pings(3)  # The loop stands still.
                self.assertEqual((daemon.acknowledged, recalls), ([], []))
                permit.check()
                self.assertIsNotNone(permit.recall)
                deadline = time.monotonic() + BOUND_S
                while not daemon.acknowledged and time.monotonic() < deadline:
                    await asyncio.sleep(0.01)
        self.assertEqual((daemon.acknowledged, len(recalls)), ([("L1", 17)], 1))


if __name__ == "__main__":
    unittest.main()
