"""What belongs to an identity is not there for another: at a daemon that has not hosted it, too."""

import os
import tempfile
import unittest

from daemon import BOUND_S, error_info, grpc, pb, wait_until
from test_security import Bearer, Stream, new_token, replace

NAME = "shared/one"


class OwnersCase(unittest.TestCase):
    """`alice` and `bob` may both acquire at every name; `root` administers."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="semaphored-owners-")
        self.addCleanup(folder.cleanup)
        self.access = os.path.join(folder.name, "access.toml")
        self.tokens, text = {}, ""
        for name, verb in (("alice", '"acquire"'), ("bob", '"acquire", "work"'), ("root", '"administer"')):
            self.tokens[name], shown = new_token()
            text += (f'[identities.{name}]\ntokens = ["{shown}"]\n'
                     f'rules = [{{ prefixes = [""], verbs = [{verb}] }}]\n')
            if name == "bob":
                text += "quotas = { semaphores = 2, tickets = 3, ticket_bytes = 25 }\n"
        replace(self.access, text.encode())

    def client(self, daemon, name):
        return Bearer(daemon.channel(), self.tokens[name])

    def check_not_there(self, client, lease_id):
        self.assertFalse(client.verify(lease_id).held)
        self.assertEqual(client.release(lease_id).released, 0)
        self.assertEqual(client.code("Renew", pb.RenewRequest(lease_id=lease_id)),
                         grpc.StatusCode.NOT_FOUND)

    def check_lost(self, client, session_id):
        end = Stream(client, resume_session_id=session_id).reader.end()
        self.assertEqual((end.code(), error_info(end).reason), (grpc.StatusCode.NOT_FOUND, "SESSION_LOST"))

    def refused(self, call, *arguments, **fields):
        with self.assertRaises(grpc.RpcError) as caught:
            call(*arguments, **fields)
        error = caught.exception
        self.assertEqual((error.code(), error_info(error).reason), (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUOTA"))
        return error.details()

    def enqueue(self, client, payload, request_id=None):
        return client.stub.Enqueue(pb.EnqueueRequest(
            request_id=request_id or client.next_id(), semaphore="jobs", limit=1, payload=payload),
            timeout=BOUND_S).ticket_id

    def check_quotas(self, daemon, restart):
        """bob may make two semaphores, and three tickets of 25 bytes together."""
        bob, root = self.client(daemon, "bob"), self.client(daemon, "root")
        first_id = bob.next_id()
        first = self.enqueue(bob, b"0123456789", first_id)
        self.enqueue(bob, b"0123456789")
        lease = bob.acquire("one", limit=1)
        restart()
        bob.acquire("jobs", limit=1)  # A semaphore that is in use is loaded.
        self.assertTrue(bob.verify(lease.lease_id).held)
        self.assertIn("2 semaphores", self.refused(bob.acquire, "two", limit=1))
        self.assertIn("25 bytes", self.refused(self.enqueue, bob, b"0123456789"))
        self.assertEqual(self.enqueue(bob, b"0123456789", first_id), first)
        self.enqueue(bob, b"")
        self.assertIn("3 tickets", self.refused(self.enqueue, bob, b""))
        # What another identity makes is not bob's.
        root.administer("two", create=pb.CreateSemaphore(limit=1))
        bob.release(bob.acquire("two").lease_id)
        bob.release(lease.lease_id)
        root.administer("one", destroy=pb.DestroySemaphore())
        bob.acquire("three", limit=1)
        self.refused(bob.acquire, "four", limit=1)

    def take(self, client):
        """A detached lease without a request id, a session, and a lease of it."""
        detached = client.acquire(NAME, limit=5, request_id=None, ttl_ms=60_000).lease_id
        session = Stream(client, ttl_ms=60_000)
        opened = session.opened()
        session.send(commands=[pb.SessionCommand(sequence=1, acquire=pb.SessionAcquire(semaphore=NAME))])
        held = session.reader.until(lambda m: m.results, "a grant").results[0].granted
        return detached, opened.session_id, held.lease_id

    def check_audited_release(self, daemon, root, lease_id):
        """An administrator ends alice's lease, which another daemon may host, and the audit log says whose it was."""
        def lines():
            return [line for line in daemon.log().splitlines() if "audit:" in line and '"act":"release"' in line]
        before = len(lines())
        self.assertEqual(root.release(lease_id).released, 1)
        wait_until(lambda: len(lines()) == before + 1, "a line in the audit log")
        self.assertIn('"old":{"owner":"alice"}', lines()[-1])

    def check_after(self, daemon, taken):
        """At a daemon that knows of them from the engine alone."""
        detached, session_id, held = taken
        alice, bob, root = (self.client(daemon, name) for name in ("alice", "bob", "root"))
        for lease_id in (detached, held):
            self.check_not_there(bob, lease_id)
        self.check_lost(bob, session_id)
        wait_until(lambda: alice.code("Renew", pb.RenewRequest(lease_id=detached)) == grpc.StatusCode.OK,
                   "the owner renews the lease")
        resumed = Stream(alice, resume_session_id=session_id, ttl_ms=60_000)
        opened = resumed.opened()
        self.assertTrue(opened.resumed)
        self.assertTrue(alice.verify(held).held)
        self.check_not_there(bob, detached)
        # An administrator ends what belongs to others.
        self.check_audited_release(daemon, root, detached)
        resumed.send(close=True)
        self.assertIsNone(resumed.reader.end())
