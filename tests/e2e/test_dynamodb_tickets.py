"""Tickets on one DynamoDB table with two daemons: what is enqueued through one is carried out by a
worker of the other, and nothing is lost when that is killed."""

import queue
import unittest

from cluster import SETTINGS
from daemon import BOUND_S, Reader, free_port, grpc, pb, wait_until
from dynamodb_case import DynamoCase
from scraping import Scrape
from work_stream import WorkStream, enqueue

PAYLOAD = bytes(range(256)) * 256  # 64 KiB, and no text.
# Until a daemon is declared dead and what it left has run out, on a loaded machine.
TAKE_OVER_S = 2 * BOUND_S


class Tickets(DynamoCase):

    def setUp(self):
        super().setUp()
        self.make_table()
        self.a, self.b = (self.daemon(node_id=node_id, **SETTINGS) for node_id in "ab")

    def worker(self, daemon, **fields):
        fields.setdefault("semaphores", ["deploy/prod"])
        stream = WorkStream(daemon.client(), **fields)
        self.addCleanup(stream.close)
        return stream

    def counts(self):
        tickets = self.a.client().describe("deploy/prod").tickets
        return (tickets.queued, tickets.delayed, tickets.assigned, tickets.dead)

    def test_a_worker_of_the_other_daemon_gets_it(self):
        worker = self.worker(self.b)
        client = self.a.client()
        tickets = [enqueue(client, "deploy/prod", bytes([number]) + PAYLOAD[1:]) for number in range(3)]
        seen = []
        for number in range(3):
            given = worker.assignment()
            self.assertEqual(given.payload, bytes([number]) + PAYLOAD[1:])
            self.assertEqual(given.attempt, 1)
            seen.append(given.ticket_id)
            worker.finish(given)
        self.assertEqual(seen, tickets)
        self.assertEqual(self.counts(), (0, 0, 0, 0))

    def test_a_prefix_finds_what_came_through_the_other_daemon(self):
        worker = self.worker(self.b, semaphores=[], prefixes=["deploy/"])
        ticket = enqueue(self.a.client(), "deploy/prod", PAYLOAD)
        given = worker.assignment()
        self.assertEqual((given.ticket_id, given.payload), (ticket, PAYLOAD))
        worker.finish(given)
        self.assertEqual(self.counts(), (0, 0, 0, 0))

    def test_a_worker_goes_on_elsewhere_when_its_daemon_is_killed(self):
        enqueue(self.a.client(), "deploy/prod", PAYLOAD)
        worker = self.worker(self.b, ttl_ms=30_000)
        given = worker.assignment()
        self.b.kill9()
        worker.close()
        resumed = self.worker(self.a, ttl_ms=30_000, client_id=worker.client_id,
                              resume_session_id=worker.session_id)
        again = resumed.assignment()
        self.assertEqual(again.payload, PAYLOAD)
        self.assertEqual((again.ticket_id, again.attempt, again.lease.token),
                         (given.ticket_id, 1, given.lease.token))
        resumed.finish(again)
        self.assertEqual(self.counts(), (0, 0, 0, 0))

    def test_a_worker_asks_again_while_the_engine_stands_still(self):
        address = f"127.0.0.1:{free_port()}"
        c = self.daemon(node_id="c", metrics_listen=address, **SETTINGS)
        worker = self.worker(self.b, ttl_ms=30_000)
        self.b.kill9()
        worker.close()
        client = c.client()
        self.addCleanup(self.server.resume)
        self.server.pause()
        calls = []
        for number in (1, 2, 3):  # It gives the first two up, but nobody has heard of that yet.
            requests = queue.Queue()
            requests.put(pb.WorkRequest(open=pb.OpenWork(
                client_id=worker.client_id, ttl_ms=30_000, semaphores=["deploy/prod"],
                resume_session_id=worker.session_id)))
            calls.append(Reader(client.stub.Work(iter(requests.get, None))))
            self.addCleanup(requests.put, None)
            wait_until(lambda: Scrape(address).value("semaphored_limit_used", limit="streams_max") ==
                       number, f"stream {number} has come")
        self.server.resume()
        calls[2].until(lambda m: m.HasField("opened"), "it is opened")
        for given_up in calls[:2]:
            self.assertEqual(given_up.end().code(), grpc.StatusCode.UNAVAILABLE)
        ticket = enqueue(client, "deploy/prod", PAYLOAD)
        given = calls[2].until(lambda m: m.assignments, "an assignment").assignments[0]
        self.assertEqual((given.ticket_id, given.payload), (ticket, PAYLOAD))

    def test_what_a_killed_daemon_and_its_worker_had_comes_back(self):
        enqueue(self.a.client(), "deploy/prod", PAYLOAD)
        worker = self.worker(self.b)
        given = worker.assignment()
        self.b.kill9()
        worker.close()
        again = self.worker(self.a).assignment(TAKE_OVER_S)
        self.assertEqual((again.ticket_id, again.attempt, again.payload),
                         (given.ticket_id, 2, PAYLOAD))
        self.assertGreater(again.lease.token, given.lease.token)

    def test_a_delay_that_a_killed_daemon_counted_is_counted_by_another(self):
        ticket = enqueue(self.b.client(), "deploy/prod", PAYLOAD, delay_ms=1000)
        self.b.kill9()
        self.assertEqual(self.worker(self.a).assignment(TAKE_OVER_S).ticket_id, ticket)

    def test_a_dead_letter_is_requeued_through_the_other_daemon(self):
        worker = self.worker(self.b)
        client = self.a.client()
        ticket = enqueue(client, "deploy/prod", PAYLOAD, max_attempts=1)
        result = worker.finish(worker.assignment(), failed=pb.TicketFailed(reason="no disk"))
        self.assertEqual(result.state, pb.TICKET_STATE_DEAD)
        wait_until(lambda: self.counts() == (0, 0, 0, 1), "it is a dead letter")
        self.assertEqual(client.administer(
            "deploy/prod", requeue_tickets=pb.RequeueTickets(all=True)).requeued, 1)
        given = worker.assignment()
        self.assertEqual((given.ticket_id, given.attempt, given.payload), (ticket, 1, PAYLOAD))
        worker.finish(given)
        self.assertEqual(self.counts(), (0, 0, 0, 0))

    def test_payloads_that_do_not_fit_an_item_are_refused_at_the_start(self):
        self.environment["SEMAPHORED_PAYLOAD_BYTES_MAX"] = "400000"
        done = self.run_program("--store", self.url(), "--listen", "127.0.0.1:0")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("payload_bytes_max", done.stderr + done.stdout)


if __name__ == "__main__":
    unittest.main()
