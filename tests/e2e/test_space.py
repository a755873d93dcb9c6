"""The embedded store's file becomes smaller when tickets go, and a daemon that is killed meanwhile
has all that it should."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from daemon import BOUND_S, error_info, grpc, pb, wait_until  # noqa: E402
from test_semctl import SemctlTest  # noqa: E402

MIB = 1 << 20
PAYLOAD_BYTES = 64 << 10
TICKETS = 1500
AT_ONCE = 50


def payload_of(number):
    return number.to_bytes(4, "big") * (PAYLOAD_BYTES // 4)


class SpaceTest(SemctlTest):
    def enqueue(self, name, count):
        """The ids of the tickets, whose payloads are those of 0 to count - 1."""
        ids = []
        for first in range(0, count, AT_ONCE):
            calls = [self.stub.Enqueue.future(
                pb.EnqueueRequest(semaphore=name, limit=1, payload=payload_of(number)),
                timeout=BOUND_S) for number in range(first, min(first + AT_ONCE, count))]
            ids += [call.result().ticket_id for call in calls]
        return ids

    def file_bytes(self):
        return os.path.getsize(self.daemon.store_path)

    def destroy(self, name):
        done = self.semctl("destroy", name, "--force", "--wait", "30s")
        self.assertEqual(done.returncode, 0, done.stderr)

    def wait_small(self, bytes_max):
        wait_until(lambda: self.file_bytes() <= bytes_max,
                   f"the file has at most {bytes_max} bytes; it has {self.file_bytes()}")

    def test_what_is_destroyed_gives_its_space_back(self):
        self.enqueue("jobs", TICKETS)
        wait_until(lambda: self.file_bytes() >= TICKETS * PAYLOAD_BYTES - 16 * MIB,
                   "the payloads are in the file")
        self.destroy("jobs")
        self.wait_small(4 * MIB)

    def test_a_kill_while_space_is_given_back(self):
        self.enqueue("gone", TICKETS)
        kept = self.enqueue("kept", 40)
        before = self.file_bytes()
        self.destroy("gone")
        # Three times, each at another step.
        for round_number in range(3):
            wait_until(lambda: self.file_bytes() < before or self.file_bytes() <= 8 * MIB,
                       "the file becomes smaller")
            before = self.file_bytes()
            self.daemon.kill9()
            self.daemon.start()
            self.stub = self.daemon.client().stub
            for number, ticket in enumerate(kept):
                self.assertEqual(self.payload("kept", ticket), payload_of(number), round_number)
        self.wait_small(8 * MIB)

    def payload(self, name, ticket):
        request = pb.AdministerRequest(semaphore=name,
                                       show_ticket=pb.ShowTicket(ticket_id=ticket))
        return self.stub.Administer(request, timeout=BOUND_S).show_ticket.payload

    def test_a_semaphore_that_has_as_many_bytes_as_it_may(self):
        self.daemon.terminate()
        self.daemon.settings.update(payload_bytes_per_semaphore_max=100_000)
        self.daemon.start()
        self.stub = self.daemon.client().stub
        self.enqueue("jobs", 1)
        with self.assertRaises(grpc.RpcError) as refused:
            self.enqueue("jobs", 1)
        self.assertEqual(refused.exception.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
        self.assertEqual(error_info(refused.exception).reason, "LIMIT_REACHED")
        for said in ("payload_bytes_per_semaphore_max (100000)", "jobs"):
            self.assertIn(said, refused.exception.details())
        self.enqueue("others", 1)
        self.destroy("jobs")
        self.enqueue("jobs", 1)


if __name__ == "__main__":
    unittest.main()
