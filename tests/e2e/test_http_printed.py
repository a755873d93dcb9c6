"""The lines of README.md and docs/http.md with curl, run as they are printed: on a machine of the test's own, with a daemon at
the default addresses."""

import os
import re
import subprocess
import unittest

import own_machine

if __name__ == "__main__":
    own_machine.enter()

from daemon import Daemon, pb  # noqa: E402
from test_printed_examples import ROOT  # noqa: E402


def curl_blocks(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        blocks = re.findall(r"^```sh\n(.*?)^```", file.read(), re.MULTILINE | re.DOTALL)
    return [block for block in blocks if "curl " in block and ":7422" in block]


def open_lines(path):
    with open(path, encoding="ascii") as file:
        return file.read().splitlines()[1:]


class Printed(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon({"http_listen": "auto", "http_writes": "on"}, port=7420).start()
        self.addCleanup(self.daemon.close)

    def test_by_default_it_is_for_this_machine_and_shows_only(self):
        self.daemon.close()
        daemon = Daemon(port=7420)
        del daemon.settings["http_listen"]
        self.addCleanup(daemon.close)
        daemon.start()
        listening = [line.split()[1] for name in ("tcp", "tcp6") for line in open_lines(f"/proc/net/{name}")
                     if line.split()[3] == "0A" and line.split()[1].endswith(f":{7422:04X}")]
        self.assertEqual(["0100007F:1CFE"], listening)
        service = "http://127.0.0.1:7422/semaphore.v1.SemaphoreService/"
        asks = "curl -s -o /dev/null -w '%{http_code}' --json "
        self.assertEqual("200", self.run_line("curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:7422/"))
        self.assertEqual("200", self.run_line(f"{asks} '{{\"list\":{{}}}}' {service}Administer"))
        daemon.client().administer("s", create=pb.CreateSemaphore(limit=2))
        for method, request in (("Acquire", '{"semaphore":"s"}'), ("Enqueue", '{"semaphore":"s"}'),
                                ("Administer", '{"semaphore":"s","resize":{"limit":7}}')):
            self.assertEqual("403", self.run_line(f"{asks} '{request}' {service}{method}"), method)
        hold = '{"acquire":{"semaphore":"s"}}'
        self.assertEqual("403", self.run_line(f"{asks} '{hold}' http://127.0.0.1:7422/v1/hold"))
        found = daemon.client().describe("s")
        self.assertEqual((2, 0, 0), (found.limit, found.held, found.tickets.queued))

    def run_line(self, line):
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", line], capture_output=True, text=True,
                              timeout=60, check=False)
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout.strip()

    def test_three_lines(self):
        client = self.daemon.client()
        for path in ("README.md", "docs/http.md"):
            takes, keeps, gives = curl_blocks(path)[0].strip().splitlines()
            lease = self.run_line(takes + "\necho $lease")
            self.assertTrue(client.verify(lease).held)
            self.assertIn("validForMs", self.run_line(f"lease={lease}\n{keeps}"))
            self.assertIn('"released":1', self.run_line(f"lease={lease}\n{gives}"))
            self.assertFalse(client.verify(lease).held)

    def test_one_line_that_holds(self):
        line = curl_blocks("docs/http.md")[1].strip()
        process = subprocess.Popen(["bash", "-c", "exec " + line], stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        while not process.stdout.readline().startswith("event: granted"):
            self.assertIsNone(process.poll())
        self.assertEqual(1, self.daemon.client().describe("team/db").held)


if __name__ == "__main__":
    unittest.main()
