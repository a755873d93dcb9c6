"""A worker as in "Distributed Semaphores with RabbitMQ" on RabbitMQ's blog, and nothing else: it
consumes from the queue with a prefetch of one and with acknowledgements, never acknowledges, and
rejects with requeue when its work is done. What is in a message is nothing to it.

Usage: blog_consumer.py URL QUEUE RECORD
RECORD: the file to which it adds a line for each entry and exit.
"""

import json
import os
import random
import sys
import time

import pika


def main():
    url, queue, record = sys.argv[1:]
    file = os.open(record, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(event):
        line = {"event": event, "pid": os.getpid(), "at_ns": time.monotonic_ns(), "kind": "blog"}
        os.write(file, (json.dumps(line) + "\n").encode())

    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=1)
    for method, _, _ in channel.consume(queue, auto_ack=False):
        note("in")
        connection.sleep(random.uniform(0.02, 0.2))  # the work
        note("out")
        channel.basic_reject(method.delivery_tag, requeue=True)


if __name__ == "__main__":
    main()
