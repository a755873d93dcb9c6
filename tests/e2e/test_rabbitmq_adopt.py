"""Queues that programs of RabbitMQ's recipe have made, with a raw client, become semaphores: `semctl adopt` counts the
messages, says what it changes, and does it once none of those programs is there any more."""

import json
import unittest

import broker
from broker import TTL_MS, foreign, free_tokens, semctl, token_queue
from daemon import error_info, grpc, wait_until
import pika

LIMIT = 3
USAGE, REFUSED = 2, 119
# Of the queue: classic, as in the blog, and quorum.
TYPES = {"classic": None, "quorum": {"x-queue-type": "quorum"}}


class Adopt(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = broker.start_broker(cls.addClassCleanup)

    def setUp(self):
        self.name = self.id().rsplit(".", 1)[1]
        self.daemon = broker.daemon_on(self.server, f"a-{self.name}", options=broker.OPTIONS)
        self.addCleanup(self.daemon.close)
        self.daemon.start()

    def make_queue(self, name, arguments=None):
        with foreign(self.server) as channel:
            channel.queue_declare(token_queue(name), durable=True, arguments=arguments)
            for _ in range(LIMIT):
                channel.basic_publish("", token_queue(name), b"resource", pika.BasicProperties(delivery_mode=2))
        self.wait_for_free(name, LIMIT)

    def wait_for_free(self, name, count):
        wait_until(lambda: free_tokens(self.server, name) == count, f"{count} messages are free")

    def adopt(self, name, *options, code=0):
        done = semctl(self.daemon, "adopt", name, *options)
        self.assertEqual(done.returncode, code, done)
        return done

    def is_no_semaphore(self, name):
        self.assertEqual(semctl(self.daemon, "describe", name).returncode, REFUSED)

    def gives_the_limit(self, name):
        client = self.daemon.client()
        leases = [client.acquire(name, ttl_ms=TTL_MS) for _ in range(LIMIT)]
        with self.assertRaises(grpc.RpcError) as raised:
            client.acquire(name)
        self.assertEqual(error_info(raised.exception).reason, "FULL")
        return client, leases

    def test_a_queue_becomes_a_semaphore(self):
        for kind, arguments in TYPES.items():
            with self.subTest(kind):
                name = f"{self.name}/{kind}"
                self.make_queue(name, arguments)
                said = self.adopt(name, "--dry-run").stdout
                self.assertIn(f"limit {LIMIT}", said)
                self.assertIn(token_queue(name), said)
                self.assertEqual(free_tokens(self.server, name), LIMIT)
                self.is_no_semaphore(name)
                lines = self.adopt(name, "--yes").stdout.splitlines()
                changes = next(i for i, line in enumerate(lines) if "is deleted" in line)
                self.assertLess(changes, lines.index(f"{name}: adopted"))
                self.assertIn(f"{name}: limit {LIMIT}, 0 held", lines[-1])
                client, leases = self.gives_the_limit(name)
                # Programs of the recipe go on with it.
                with foreign(self.server) as channel:
                    self.assertIsNone(channel.basic_get(token_queue(name))[0])
                    client.release(leases[0].lease_id)
                    wait_until(lambda: channel.basic_get(token_queue(name))[0], "it has the permit")

    def test_programs_of_the_recipe_are_in_the_way(self):
        for kind, arguments in TYPES.items():
            with self.subTest(kind):
                name = f"{self.name}/{kind}"
                self.make_queue(name, arguments)
                with foreign(self.server) as channel:
                    held = []
                    channel.basic_qos(prefetch_count=1)
                    channel.basic_consume(token_queue(name), lambda *message, held=held: held.append(message))

                    def holds(channel=channel, held=held):
                        channel.connection.process_data_events(time_limit=0)
                        return held
                    wait_until(holds, "it holds a permit")
                    said = self.adopt(name, "--yes", code=REFUSED).stderr
                    self.assertIn("programs consume from " + token_queue(name), said)
                    self.wait_for_free(name, LIMIT - 1)
                    self.is_no_semaphore(name)
                wait_until(lambda name=name: semctl(self.daemon, "adopt", name, "--yes").returncode == 0,
                           "it is adopted once the program has gone")
                self.gives_the_limit(name)

    def test_without_a_word_nothing_is_changed(self):
        self.make_queue(self.name)
        self.assertIn("--yes", self.adopt(self.name, code=USAGE).stderr)
        self.assertIn("not_confirmed", self.adopt(self.name, "-o", "json", code=USAGE).stderr)
        self.assertEqual(free_tokens(self.server, self.name), LIMIT)
        self.is_no_semaphore(self.name)

    def test_as_json(self):
        self.make_queue(self.name)
        looked = json.loads(self.adopt(self.name, "--dry-run", "-o", "json").stdout)
        self.assertEqual((looked["adopted"], looked["limit"]), (False, LIMIT))
        done = self.adopt(self.name, "--yes", "-o", "json")
        self.assertEqual(json.loads(done.stderr)["event"], "changes")
        adopted = json.loads(done.stdout)
        self.assertEqual((adopted["adopted"], adopted["semaphore"]["limit"]), (True, LIMIT))
        again = json.loads(self.adopt(self.name, "--yes", "-o", "json", code=REFUSED).stderr)
        self.assertEqual(again["error"]["reason"], "ALREADY_EXISTS")

    def test_nothing_is_there(self):
        refused = json.loads(self.adopt(self.name, "--yes", "-o", "json", code=REFUSED).stderr)
        self.assertEqual((refused["error"]["code"], refused["error"]["reason"]), ("FAILED_PRECONDITION", "UNUSABLE"))
        self.assertIn(token_queue(self.name), refused["error"]["message"])


if __name__ == "__main__":
    unittest.main()
