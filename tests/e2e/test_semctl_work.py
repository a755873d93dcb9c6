"""semctl work: what holds up one thing holds up nothing else."""

import os
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from daemon import BOUND_S, wait_until  # noqa: E402
from test_semctl import SEMCTL  # noqa: E402
from test_tickets import TicketsTest  # noqa: E402

# Says that it was begun, and waits until it may exit.
COMMAND = """
echo > "$0/begun-${SEMAPHORE_NAME#job/}-$SEMAPHORE_ATTEMPT"
while [ ! -e "$0/exit" ]; do sleep 0.02; done
"""


def fill(pipe):
    """Nothing more can be written to it until it is read."""
    os.set_blocking(pipe, False)
    for size in (65_536, 1):
        try:
            while True:
                os.write(pipe, b"x" * size)
        except BlockingIOError:
            pass
    os.set_blocking(pipe, True)


class UnreadTest(TicketsTest):
    def start_unread(self, *arguments):
        """A worker whose standard error is full, and the file to read it by."""
        reader, writer = os.pipe()
        said = os.fdopen(reader, "rb")
        self.addCleanup(said.close)
        fill(writer)
        worker = subprocess.Popen([SEMCTL, "work", *arguments], env=self.environment(),
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=writer)
        os.close(writer)
        self.addCleanup(worker.wait, BOUND_S)
        self.addCleanup(worker.kill)
        return worker, said

    def has_begun(self, number, attempt):
        return os.path.exists(os.path.join(self.folder, f"begun-{number}-{attempt}"))

    def test_messages_that_are_not_read_hold_up_no_job(self):
        for number in (1, 2):
            self.enqueue(f"job/{number}", "x")
        worker, said = self.start_unread("job/*", "--tickets", "2", "--ttl", "2s", "--", "sh",
                                         "-c", COMMAND, self.folder)
        for number in (1, 2):
            wait_until(lambda n=number: self.has_begun(n, 1), f"job {number} is begun")
        with open(os.path.join(self.folder, "exit"), "w", encoding="ascii"):
            pass
        for number in (1, 2):
            self.wait_counts(f"job/{number}", (0, 0, 0, 0))
            self.assertFalse(self.has_begun(number, 2))
        worker.send_signal(signal.SIGTERM)
        text = said.read().decode()
        self.assertEqual(worker.wait(BOUND_S), 0)
        self.assertEqual((text.count(": begun"), text.count(": done")), (2, 2))


if __name__ == "__main__":
    unittest.main()
