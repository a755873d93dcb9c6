"""What people, and clients of another recipe, do to the keys of a semaphore while our clients hold
it: each row of the table "When somebody has been at the keys" in docs/consul.md. A clear error, no
permit over the limit, an alarm in the log, and `semctl prune` mends what does not mend itself."""

import json
import os
import subprocess
import time
import unittest

import cluster
from cluster import Cluster, NODE_TTL_S
from consul import ConsulServer
from daemon import BIN_DIR, BOUND_S, error_info, grpc, pb, wait_until
from foreign import FLAGS, ConsulLock, Contender
from outage import Holder

SEMCTL = os.path.join(BIN_DIR, "semctl")
PREFIX = "team"
LIMIT = 3
TTL_MS = 60_000
REFUSED = 119  # Of semctl.
# HashiCorp's clients give their sessions 15 s, and Consul twice as much.
FOREIGN_DEAD_S = 2 * 15 + 10
# A sweep, and what a loaded machine adds.
NOTICED_S = 5 + 3
PYTHON_RECORD = b'{"limit": 3, "holders": ["0ec1e7a0-0b1f-4d6c-b2c7-2a2b7c6b1a11"]}'


class ByHand(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = cluster.start_server(cls, ConsulServer)

    def setUp(self):
        self.name = self.id().rsplit(".", 1)[1]
        url = self.server.url(PREFIX)
        self.daemons = self.enterContext(Cluster({"a": url, "b": url}))
        self.clients = [daemon.client() for daemon in self.daemons.daemons.values()]
        # One permit at each daemon.
        self.leases = [client.acquire(self.name, limit=LIMIT, ttl_ms=TTL_MS)
                       for client in self.clients]

    def tearDown(self):
        for daemon in self.daemons.daemons.values():
            self.assertIsNone(daemon.process.poll(), f"a daemon ended:\n{daemon.log()}")

    # ---- what somebody does ----

    def key(self, part=".lock"):
        return f"kv/{PREFIX}/{self.name}/{part}"

    def record(self):
        status, record = self.server.request("GET", self.key() + "?raw")
        return record if status == 200 else None

    def put(self, value, key=None):
        status, done = self.server.request("PUT", f"{key or self.key()}?flags={FLAGS}", value)
        self.assertEqual((status, done), (200, True))

    def foreign(self):
        holder = Contender(self.server, f"{PREFIX}/{self.name}", LIMIT)
        self.addCleanup(holder.end)
        return holder

    # ---- what is to be seen ----

    def alarms(self, text):
        """How many of the daemons have told of it."""
        return sum(any(self.name in line and text in line and " error " in line
                       for line in daemon.log().splitlines())
                   for daemon in self.daemons.daemons.values())

    def refused(self, client, code, reason, text, **fields):
        with self.assertRaises(grpc.RpcError) as raised:
            client.acquire(self.name, limit=LIMIT, ttl_ms=TTL_MS, **fields)
        error = raised.exception
        self.assertEqual((error.code(), error_info(error).reason), (code, reason), error.details())
        self.assertIn(text, error.details())
        self.assertIn(self.name, error.details())
        self.assertEqual(error_info(error).metadata["semaphore"], self.name)

    def unusable(self, text):
        """Nothing is granted, whether one waits or not."""
        for client in self.clients:
            for wait_forever in (False, True):
                self.refused(client, grpc.StatusCode.FAILED_PRECONDITION, "UNUSABLE", text,
                             wait_forever=wait_forever)

    def full(self):
        for client in self.clients:
            self.refused_as_full(client)

    def refused_as_full(self, client):
        with self.assertRaises(grpc.RpcError) as raised:
            client.acquire(self.name, limit=LIMIT)
        self.assertEqual(error_info(raised.exception).reason, "FULL", raised.exception.details())

    def check_held(self, leases=None):
        """By all that we can be asked, at both daemons."""
        leases = self.leases if leases is None else leases
        for client in self.clients:
            for lease in leases:
                answer = client.verify(lease.lease_id)
                self.assertTrue(answer.held)
                self.assertEqual((answer.lease.token, answer.lease.slots),
                                 (lease.token, lease.slots))

    def wait_for_holders(self, count):
        return wait_until(lambda: self.holders_if(count), f"{count} holders in the record",
                          NOTICED_S)

    def holders_if(self, count):
        record = self.record()
        is_so = (isinstance(record, dict) and record.get("Limit") == LIMIT
                 and len(record["Holders"]) == count)
        return set(record["Holders"]) if is_so else None

    def semctl_prune(self):
        """Its exit code, and what it says."""
        pruned = subprocess.run(
            [SEMCTL, "--server", self.daemons["b"].address, "prune", self.name],
            capture_output=True, text=True, timeout=BOUND_S, check=False)
        return pruned.returncode, pruned.stdout + pruned.stderr

    def prune(self, code=0):
        got, text = self.semctl_prune()
        self.assertEqual(got, code, text)
        return text

    def check_all_is_well(self, held=2):
        """One more fits beside `held`, one gives back and another gets it, and then all leave."""
        self.check_held(self.leases[:held])
        last = self.clients[1].acquire(self.name, limit=LIMIT, ttl_ms=TTL_MS)
        rest = [self.clients[0].acquire(self.name, limit=LIMIT, ttl_ms=TTL_MS)
                for _ in range(LIMIT - held - 1)]
        self.full()
        self.wait_for_holders(LIMIT)
        waiter = self.clients[0].acquire_later(self.name, ttl_ms=TTL_MS)
        self.clients[0].wait_for_queue(self.name, 1)
        self.clients[1].release(last.lease_id)
        rest.append(waiter.result(BOUND_S).lease)
        self.assertGreater(rest[-1].token, last.token)
        for lease in self.leases[:held] + rest:
            self.clients[0].release(lease.lease_id)
        self.assertEqual(self.record(), {"Limit": LIMIT, "Holders": {}})

    # ---- sessions ----

    def test_a_session_is_ended(self):
        before = self.wait_for_holders(2)
        self.server.request("PUT", f"session/destroy/{min(before)}")
        after = wait_until(lambda: (self.holders_if(2) or before) - {min(before)} - before
                           and self.holders_if(2), "another is in its place", NOTICED_S)
        self.assertNotIn(min(before), after)
        self.assertGreater(self.alarms("sessions were ended"), 0)
        self.check_all_is_well()

    def test_all_sessions_are_ended(self):
        before = self.wait_for_holders(2)
        for session in self.server.request("GET", f"session/node/semaphored-{PREFIX}")[1]:
            self.server.request("PUT", f"session/destroy/{session['ID']}")
        wait_until(lambda: self.holders_if(2) and not self.holders_if(2) & before,
                   "others are in their place", NOTICED_S)
        self.check_all_is_well()

    def test_the_node_of_the_sessions_is_removed(self):
        """With it all sessions, and none can be made before it is there again."""
        before = self.wait_for_holders(2)
        status, _ = self.server.request("PUT", "catalog/deregister",
                                        {"Node": f"semaphored-{PREFIX}"})
        self.assertEqual(status, 200)
        wait_until(lambda: self.holders_if(2) and not self.holders_if(2) & before,
                   "others are in their place", NOTICED_S)
        self.check_all_is_well()

    def test_a_foreign_client_enters_when_a_session_is_ended(self):
        """It cannot be kept out for a moment. Then nobody gets more until the number has fallen."""
        self.leases.append(self.clients[0].acquire(self.name, limit=LIMIT, ttl_ms=TTL_MS))
        before = self.wait_for_holders(LIMIT)
        foreign = self.foreign()
        self.assertFalse(foreign.try_acquire())
        self.server.request("PUT", f"session/destroy/{min(before)}")
        # Nobody looks before the sweep, unless it is due just now.
        entered = foreign.try_acquire()
        if not entered:
            self.assertNotIn(min(before), self.wait_for_holders(LIMIT))
            return
        self.wait_for_holders(LIMIT + 1)
        self.full()
        self.check_held()
        self.clients[0].release(self.leases.pop(0).lease_id)
        self.full()
        foreign.end()
        self.check_all_is_well()

    # ---- the record ----

    def test_the_record_is_removed(self):
        before = self.wait_for_holders(2)
        self.server.request("DELETE", self.key())
        self.assertEqual(self.wait_for_holders(2), before)
        self.assertGreater(self.alarms("was removed"), 0)
        self.check_all_is_well()

    def test_the_record_is_removed_and_somebody_asks_at_once(self):
        """What is said is true: no permit too many, and the record is there again."""
        third = self.clients[0].acquire(self.name, limit=LIMIT, ttl_ms=TTL_MS)
        before = self.wait_for_holders(LIMIT)
        self.server.request("DELETE", self.key())
        self.full()
        self.assertEqual(self.wait_for_holders(LIMIT), before)
        self.clients[0].release(third.lease_id)
        self.check_all_is_well()

    def test_the_record_is_removed_and_a_foreign_client_enters(self):
        foreign = self.foreign()
        self.server.request("DELETE", self.key())
        wait_until(foreign.try_acquire, "it enters, before or after it is put right")
        self.wait_for_holders(LIMIT)
        self.full()
        self.check_held()
        foreign.end()
        self.check_all_is_well()

    def test_our_holders_are_taken_out_of_the_record(self):
        before = self.wait_for_holders(2)
        self.put(json.dumps({"Limit": LIMIT, "Holders": {}}).encode())
        self.assertEqual(self.wait_for_holders(2), before)
        self.assertGreater(self.alarms("without our holders"), 0)
        self.check_all_is_well()

    def check_unusable_until_pruned(self, value, text):
        before = self.wait_for_holders(2)
        self.put(value)
        self.unusable(text)
        self.check_held()
        wait_until(lambda: self.alarms(text) == 2, "both daemons raise an alarm", NOTICED_S)
        # What is held can be given back, and stays given back.
        self.clients[0].release(self.leases.pop().lease_id)
        self.unusable(text)
        # While foreign contenders live nobody knows whether they hold.
        foreign = self.foreign()
        self.assertIn("foreign clients are there (1)", self.prune(code=REFUSED))
        self.assertIsNone(self.holders_if(1))
        self.unusable(text)
        foreign.end()
        self.prune()
        self.assertEqual(len(self.wait_for_holders(1) & before), 1)
        self.check_all_is_well(held=1)

    def test_the_record_is_garbled(self):
        self.check_unusable_until_pruned(b"garbled", "not understood")

    def test_the_record_is_emptied(self):
        self.check_unusable_until_pruned(b"", "not understood")

    def test_the_record_is_overwritten_by_the_recipe_in_python(self):
        self.check_unusable_until_pruned(PYTHON_RECORD, "holders as a list")

    def test_foreign_clients_end_when_the_record_is_garbled(self):
        """And their sessions after them: nobody need look for them before `semctl prune`."""
        with ConsulLock(self.server, f"{PREFIX}/{self.name}", LIMIT) as foreign:
            self.wait_for_holders(LIMIT)
            self.put(b"garbled")
            foreign.process.wait(BOUND_S)
        wait_until(lambda: self.semctl_prune()[0] == 0, "its session has ended", FOREIGN_DEAD_S)
        # Connections on which nobody calls answer no pings in Python, and the daemon ends them.
        self.clients = [daemon.client() for daemon in self.daemons.daemons.values()]
        self.wait_for_holders(2)
        self.check_all_is_well()

    # ---- a dead holder ----

    def test_a_foreign_holder_has_died(self):
        foreign = self.foreign()
        self.assertTrue(foreign.try_acquire())
        self.wait_for_holders(LIMIT)
        self.full()
        foreign.end()
        self.check_all_is_well()

    # ---- the document ----

    def test_the_document_is_damaged(self):
        """Of this semaphore nothing is known any more; the others go on."""
        # A token stands in the document from the next commit on. Before, it is the key's index.
        self.clients[0].release(self.leases.pop().lease_id)
        key = f"kv/{PREFIX}/.semaphored/d/{self.name}!"
        _, saved = self.server.request("GET", key + "?raw")
        other = self.name + "x"
        kept = self.clients[0].acquire(other, limit=LIMIT, ttl_ms=TTL_MS)
        saved = json.dumps(saved).encode()
        self.addCleanup(self.put, saved, key)  # For the tests after this one.
        self.put(b"damaged", key)
        for client in self.clients:
            self.refused(client, grpc.StatusCode.DATA_LOSS, "ENGINE_CORRUPT", self.name)
        holder = Holder(self.clients[1], other, pb.HoldRequest(
            beat_interval_ms=200, acquire=self.clients[1].acquire_request(other, ttl_ms=TTL_MS)))
        begun = time.monotonic()
        # For longer than a daemon that is in trouble may vouch for.
        wait_until(lambda: (holder.beat(), time.monotonic() > begun + 2 * NODE_TTL_S)[1], "")
        self.assertTrue(self.clients[0].verify(kept.lease_id).held)
        self.clients[0].release(holder.lease.lease_id)
        for client in self.clients:
            client.release(client.acquire(other, limit=LIMIT, ttl_ms=TTL_MS).lease_id)
        # As from a snapshot.
        self.put(saved, key)
        self.check_held()
        for client in self.clients:
            self.assertTrue(client.verify(kept.lease_id).held)


if __name__ == "__main__":
    unittest.main()
