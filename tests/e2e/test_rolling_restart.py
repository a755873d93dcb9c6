"""Two daemons on one Postgres are restarted one after the other while clients work: no lease is lost,
and nobody has to wait for long. What it measures is printed."""

import os
import signal
import subprocess
import threading
import time
import unittest

import cluster
from cluster import Cluster
from daemon import BIN_DIR, BOUND_S, Client, grpc, pb, wait_until

HOLDERS = 12
WORKERS = 8
ROUNDS = 2
# A daemon that ends cuts off calls that come in at its last moment; nothing is known of them.
AGAIN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


class Worker(threading.Thread):
    """Takes a permit that is free and gives it back, again and again, at whichever daemon answers.
    The same request id at the other one: a retry."""

    def __init__(self, addresses):
        super().__init__(daemon=True)
        again = (("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 500),
                 ("grpc.use_local_subchannel_pool", 1))
        self.channels = [grpc.insecure_channel(address, options=again) for address in addresses]
        self.clients = [Client(channel) for channel in self.channels]
        self.cycles_s = []
        self.problem = None
        self.stopping = threading.Event()

    def anywhere(self, call):
        deadline = time.monotonic() + BOUND_S
        while True:
            try:
                return call(self.clients[0].stub)
            except grpc.RpcError as error:
                if error.code() not in AGAIN or time.monotonic() > deadline:
                    raise
            self.clients.reverse()
            time.sleep(0.005)

    def cycle(self):
        request = self.clients[0].acquire_request("work", limit=WORKERS, ttl_ms=30_000)
        lease = self.anywhere(lambda stub: stub.Acquire(request, timeout=BOUND_S)).lease
        give_back = pb.ReleaseRequest(request_id=self.clients[0].next_id(), lease_id=lease.lease_id)
        released = self.anywhere(lambda stub: stub.Release(give_back, timeout=BOUND_S))
        if released.released != 1:
            raise AssertionError(f"{lease.lease_id} was lost: {released}")

    def run(self):
        try:
            while not self.stopping.is_set():
                begun = time.monotonic()
                self.cycle()
                self.cycles_s.append(time.monotonic() - begun)
        except Exception as error:  # pylint: disable=broad-except  told by the test
            self.problem = error

    def finish(self):
        self.stopping.set()
        self.join(2 * BOUND_S)
        for channel in self.channels:
            channel.close()


class RollingRestart(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = cluster.start_server(cls)

    def hold(self, daemons):
        """A command under a lease, which says its lease and ends with its input."""
        process = subprocess.Popen(
            [os.path.join(BIN_DIR, "semctl"), "run", "held", "--limit", str(HOLDERS), "--ttl", "30s",
             "--", "sh", "-c", 'echo "$SEMAPHORE_LEASE $SEMAPHORE_TOKEN"; exec cat'],
            env={**os.environ, "SEMCTL_SERVER": ",".join(daemons.addresses)}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        process.kill()
        process.wait(BOUND_S)
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()

    def standing(self, daemon):
        rows = daemon.client().describe_rows("held").leases
        return {(row.lease.lease_id, row.lease.token) for row in rows}

    def wait_for_work(self, workers, cycles):
        """Until every worker has done so many more."""
        seen = [len(worker.cycles_s) for worker in workers]
        wait_until(lambda: any(worker.problem for worker in workers) or
                   all(len(worker.cycles_s) >= before + cycles
                       for worker, before in zip(workers, seen)), "all workers work", 60)
        self.assertEqual([worker.problem for worker in workers if worker.problem], [])

    def test_one_after_the_other(self):
        stores = {name: self.server.url("rolling") for name in "ab"}
        with Cluster(stores) as daemons:
            holders = [self.hold(daemons) for _ in range(HOLDERS)]
            leases = {tuple(holder.stdout.readline().split()) for holder in holders}
            leases = {(lease, int(token)) for lease, token in leases}
            self.assertEqual(len(leases), HOLDERS)
            workers = [Worker(daemons.addresses[::1 if i % 2 else -1]) for i in range(WORKERS)]
            for worker in workers:
                worker.start()
            try:
                self.wait_for_work(workers, 20)
                restarts_s = [self.restart(daemon, workers)
                              for _ in range(ROUNDS) for daemon in daemons.daemons.values()]
                self.wait_for_work(workers, 20)
            finally:
                for worker in workers:
                    worker.finish()
            self.assertEqual(self.standing(daemons["a"]), leases)
            for holder in holders:
                holder.stdin.close()
            codes = [holder.wait(BOUND_S) for holder in holders]
            self.assertEqual(codes, [0] * HOLDERS, "a lease was lost")
        cycles = sorted(second for worker in workers for second in worker.cycles_s)
        print(f"\nrolling restart: {len(restarts_s)} restarts of {max(restarts_s):.2f} s at most, "
              f"{HOLDERS} leases held throughout, {len(cycles)} cycles of {WORKERS} workers, half of "
              f"them within {cycles[len(cycles) // 2] * 1000:.1f} ms, the longest {cycles[-1]:.2f} s",
              flush=True)
        self.assertLess(cycles[-1], BOUND_S)

    def restart(self, daemon, workers):
        begun = time.monotonic()
        daemon.signal(signal.SIGTERM)
        self.assertEqual(daemon.wait_exit(), 0, daemon.log()[-2000:])
        daemon.start()
        took = time.monotonic() - begun
        self.wait_for_work(workers, 20)
        return took


if __name__ == "__main__":
    unittest.main()
