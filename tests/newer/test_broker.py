"""What RabbitMQ itself does with a quorum queue, version by version: how often a message may come back, which ways back
it counts, and where the count stands. The adapter and docs/rabbitmq.md rely on it.

Needs SEMAPHORED_TEST_RABBITMQ_URL_FILE, beside which a broker runs that tests/engines/rabbitmq.py has started."""

import contextlib
import os
import re
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "engines"))

from rabbitmq import RabbitServer  # noqa: E402  the folder has to be on the path first

import pika  # noqa: E402

BOUND_S = 60.0
URL_FILE = os.environ.get("SEMAPHORED_TEST_RABBITMQ_URL_FILE", "")
LIMIT = 20  # Of a queue that says nothing, from 4.0 on.
TIMEOUT_MS = 1000
# Takes the message, says so, and keeps it until it is killed.
HOLD = """
import sys, pika
connection = pika.BlockingConnection(pika.URLParameters(sys.argv[1]))
channel = connection.channel()
while channel.basic_get(sys.argv[2])[0] is None:
    pass
print("held", flush=True)
while True:
    connection.process_data_events(1)
"""


class Broker(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        with open(URL_FILE, encoding="ascii") as file:
            cls.url = file.read()
        cls.server = RabbitServer(os.path.dirname(URL_FILE))
        version = cls.server.version()
        print(f"found: rabbitmq {version}", flush=True)
        cls.version = tuple(int(number) for number in re.findall(r"\d+", version)[:2])

    def setUp(self):
        self.queue = f"broker {os.getpid()} {self.id().rpartition('.')[2]}"
        self.channel = self.connect().channel()
        self.addCleanup(self.delete)

    def connect(self):
        connection = pika.BlockingConnection(pika.URLParameters(self.url))
        self.addCleanup(self.close, connection)
        return connection

    @staticmethod
    def close(connection):
        with contextlib.suppress(pika.exceptions.AMQPError):
            connection.close()

    def delete(self):
        self.connect().channel().queue_delete(self.queue)

    def make(self, **arguments):
        """An empty quorum queue, and one message in it."""
        self.channel.queue_delete(self.queue)
        self.declare(self.channel, **arguments)
        self.channel.confirm_delivery()
        self.channel.basic_publish("", self.queue, b"permit", pika.BasicProperties(delivery_mode=2))

    def declare(self, channel, **arguments):
        channel.queue_declare(self.queue, durable=True, arguments={
            "x-queue-type": "quorum", **{"x-" + name.replace("_", "-"): value for name, value in arguments.items()}})

    def take(self, channel):
        """(method, headers) of the message, which is in the queue or about to be."""
        until = time.monotonic() + BOUND_S
        while time.monotonic() < until:
            method, properties, _ = channel.basic_get(self.queue)
            if method is not None:
                return method, properties.headers or {}
            time.sleep(0.01)
        raise AssertionError("the message has not come back")

    def survives(self, returns):
        """Whether the message is there after so many returns."""
        for _ in range(returns):
            method, _ = self.take(self.channel)
            self.channel.basic_reject(method.delivery_tag, requeue=True)
        # A return has been carried out when the queue has answered the next request of the same channel.
        method, _, _ = self.channel.basic_get(self.queue)
        until = time.monotonic() + BOUND_S
        while method is None and self.messages() > 0 and time.monotonic() < until:
            method, _, _ = self.channel.basic_get(self.queue)
        return method is not None

    def messages(self):
        said = self.server.ctl("list_queues", "name", "messages")
        return int(dict(line.rsplit("\t", 1) for line in said.splitlines() if "\t" in line)[self.queue])

    # ---- How often a message may come back ----

    def kept(self):
        """As the adapter makes its queues. Before 4.0 a queue with the limit -1 loses a message that comes back once."""
        return {"delivery_limit": -1} if self.version >= (4, 0) else {}

    def test_a_queue_of_the_adapter_keeps_what_comes_back_often(self):
        self.make(**self.kept())
        self.assertTrue(self.survives(3 * LIMIT))

    def test_the_limit_minus_1_is_none_from_4_0_on(self):
        self.make(delivery_limit=-1)
        self.assertEqual(self.survives(1), self.version >= (4, 0))

    def test_a_queue_without_a_limit_drops_what_comes_back_often_from_4_0_on(self):
        self.make()
        self.assertTrue(self.survives(LIMIT))
        self.make()
        self.assertEqual(self.survives(LIMIT + 1), self.version < (4, 0))

    def test_a_policy_keeps_it_in_a_queue_that_was_made_without_a_limit(self):
        self.make()
        policy = ("set_policy", "--apply-to", "queues", "broker", f"^{re.escape(self.queue)}$",
                  '{"delivery-limit": -1}')
        if self.version < (4, 0):
            with self.assertRaisesRegex(RuntimeError, "not a valid delivery limit"):
                self.server.ctl(*policy)
            return
        self.server.ctl(*policy)
        self.addCleanup(self.server.ctl, "clear_policy", "broker")
        self.assertTrue(self.survives(3 * LIMIT))

    def test_a_queue_keeps_the_limit_that_it_was_made_with(self):
        """So a daemon cannot declare the queue of an older broker with another limit."""
        self.make()
        channel = self.connect().channel()
        with self.assertRaises(pika.exceptions.ChannelClosedByBroker) as refused:
            self.declare(channel, delivery_limit=-1)
        self.assertEqual(refused.exception.reply_code, 406)

    # ---- Which ways back count, and where ----

    def counts(self, come_back, **arguments):
        """(x-delivery-count, x-acquired-count) behind one way back; None: the header is absent."""
        self.make(**self.kept(), **arguments)
        come_back()
        method, headers = self.take(self.channel)
        self.channel.basic_ack(method.delivery_tag)
        return headers.get("x-delivery-count"), headers.get("x-acquired-count")

    def expect(self, come_back, since_4_3, **arguments):
        found = self.counts(come_back, **arguments)
        self.assertEqual(found, since_4_3 if self.version >= (4, 3) else (1, None))

    def test_a_first_delivery_has_been_counted_nowhere(self):
        self.assertEqual(self.counts(lambda: None), (None if self.version >= (4, 0) else 0, None))

    def test_reject(self):
        def come_back():
            method, _ = self.take(self.channel)
            self.channel.basic_reject(method.delivery_tag, requeue=True)
        self.expect(come_back, (1, 1))

    def test_nack(self):
        def come_back():
            method, _ = self.take(self.channel)
            self.channel.basic_nack(method.delivery_tag, requeue=True)
        self.expect(come_back, (None, 1))

    def test_a_channel_that_is_closed(self):
        def come_back():
            channel = self.connect().channel()
            self.take(channel)
            channel.close()
        self.expect(come_back, (1, 1))

    def test_a_connection_that_breaks(self):
        def come_back():
            with subprocess.Popen([sys.executable, "-B", "-c", HOLD, self.url, self.queue],
                                  stdout=subprocess.PIPE, text=True) as holder:
                self.assertEqual(holder.stdout.readline(), "held\n")
                holder.kill()
        self.expect(come_back, (1, 1))

    def test_a_consumer_that_keeps_it_for_too_long(self):
        """Only from 4.3 on the queue can be given a time-out of its own."""
        if self.version < (4, 3):
            return
        def come_back():
            channel = self.connect().channel()
            cancelled = []
            channel.add_on_cancel_callback(cancelled.append)
            channel.basic_consume(self.queue, lambda *_: None)
            until = time.monotonic() + BOUND_S
            while not cancelled and channel.is_open and time.monotonic() < until:
                channel.connection.process_data_events(0.05)
            print(f"found: the consumer was {'cancelled' if cancelled else 'not cancelled'}, its channel is "
                  f"{'open' if channel.is_open else 'closed'}", flush=True)
            self.assertTrue(cancelled)
            self.assertTrue(channel.is_open)
        self.expect(come_back, (None, 1), consumer_timeout=TIMEOUT_MS)

    # ---- Queues that do not last ----

    def test_queues_that_are_not_durable(self):
        """From 4.0 on the tests' brokers refuse those that are not exclusive: tests/engines/rabbitmq.py."""
        if self.version >= (4, 0):
            said = self.server.ctl("list_deprecated_features", "name", "deprecation_phase")
            print("found:", *re.search(r"(transient_nonexcl_queues)\W.*?(\w+_by_default|removed|disconnected)",
                                       said).groups(), flush=True)
        for exclusive, refused in ((True, False), (False, self.version >= (4, 0))):
            with self.subTest(exclusive=exclusive):
                name = f"{self.queue} {exclusive}"
                channel = self.connect().channel()
                if refused:
                    with self.assertRaises(pika.exceptions.AMQPError) as error:
                        channel.queue_declare(name, exclusive=exclusive)
                    self.assertIn("transient_nonexcl_queues", str(error.exception))
                else:
                    channel.queue_declare(name, exclusive=exclusive)
                    channel.queue_delete(name)


if __name__ == "__main__":
    unittest.main()
