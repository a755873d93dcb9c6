"""Health while the engine is away: the daemon is alive, and not ready."""

import os
import subprocess
import unittest

from consul_case import ConsulCase
from daemon import BIN_DIR, BOUND_S, Reader, wait_until
from proxy import TcpProxy

SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"


class HealthTest(ConsulCase):

    def health(self, daemon, *arguments):
        return subprocess.run([os.path.join(BIN_DIR, "semaphored"), "health", "--address", daemon.address, *arguments],
                              capture_output=True, text=True, timeout=BOUND_S, check=False)

    def test_a_daemon_out_of_touch_is_alive_and_not_ready(self):
        proxy = TcpProxy(self.server.port)
        self.addCleanup(proxy.close)
        daemon = self.daemon(port=proxy.port)
        watch = Reader(daemon.channel().unary_stream("/grpc.health.v1.Health/Watch")(b""))
        liveness = Reader(daemon.channel().unary_stream("/grpc.health.v1.Health/Watch")(b"\x0a\x08liveness"))
        self.assertEqual(watch.next(), SERVING)
        self.assertEqual(liveness.next(), SERVING)
        self.assertEqual(self.health(daemon).returncode, 0)
        proxy.refuse()
        proxy.close_all()
        self.assertEqual(watch.next(), NOT_SERVING)
        said = self.health(daemon)
        self.assertEqual(said.returncode, 1)
        self.assertIn("out of touch", said.stderr)
        said = self.health(daemon, "--liveness")
        self.assertEqual((said.returncode, said.stdout), (0, f"alive on {daemon.address}\n"))
        proxy.heal()
        self.assertEqual(watch.next(), SERVING)
        wait_until(lambda: self.health(daemon).returncode == 0, "it is ready again")
        daemon.terminate()
        self.assertEqual(watch.next(), NOT_SERVING)


if __name__ == "__main__":
    unittest.main()
