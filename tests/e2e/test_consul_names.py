"""Names that climb, sent by a tenant of one folder: they reach no path of Consul, and no other client waits."""

import threading
import unittest

from consul_case import ConsulCase
from counting_proxy import CountingProxy
from daemon import BOUND_S, error_info, grpc, pb, pb_grpc
from test_security import new_token

NAMES = ["a/../../../agent/monitor", "a/..", "a/.", "a/./b", "a//b", "../a", "..", ".", "/a", "a/../b/../../status"]
CLIENT_IDS = [".", "..", "../../../agent/monitor", "a/b", "%2e%2e", "?keys", "x#y"]


class NamesTest(ConsulCase):

    def setUp(self):
        super().setUp()
        self.proxy = CountingProxy(self.server.port)
        self.addCleanup(self.proxy.close)
        token, digest = new_token()
        access = f"{self.folder}/access.toml"
        with open(access, "w", encoding="utf-8") as file:
            file.write(f'[identities.a]\ntokens = ["{digest}"]\n'
                       'rules = [{ prefixes = ["a/", "b/"], verbs = ["acquire", "verify", "work", "administer"] }]\n')
        channel = self.daemon(port=self.proxy.port, access_file=access).channel()
        self.stub = pb_grpc.SemaphoreServiceStub(channel)
        self.options = {"timeout": BOUND_S, "metadata": (("authorization", "Bearer " + token),)}

    def calls(self, name):
        """A call for each field that takes a name or the beginning of one."""
        stub, options, claim = self.stub, self.options, "#" + 32 * "1"
        admin = [pb.AdministerRequest(semaphore=name, create=pb.CreateSemaphore(limit=1)),
                 pb.AdministerRequest(semaphore=name, describe=pb.DescribeSemaphore()),
                 pb.AdministerRequest(list=pb.ListSemaphores(prefix=name))]
        return [
            ("acquire", lambda: stub.Acquire(pb.AcquireRequest(semaphore=name, limit=1, ttl_ms=9000), **options)),
            ("release", lambda: stub.Release(pb.ReleaseRequest(lease_id=name + claim), **options)),
            ("renew", lambda: stub.Renew(pb.RenewRequest(lease_id=name + claim), **options)),
            ("verify", lambda: stub.Verify(pb.VerifyRequest(lease_id=name + claim), **options)),
            ("enqueue", lambda: stub.Enqueue(pb.EnqueueRequest(semaphore=name), **options)),
            ("watch", lambda: next(stub.Watch(pb.WatchRequest(prefix=name), **options))),
            ("hold", lambda: next(stub.Hold(pb.HoldRequest(
                acquire=pb.AcquireRequest(semaphore=name, limit=1)), **options))),
            *((request.WhichOneof("act"), lambda request=request: stub.Administer(request, **options))
              for request in admin),
        ]

    def test_a_name_reaches_no_other_path(self):
        for name in NAMES:
            for what, call in self.calls(name):
                with self.subTest(call=what, name=name), self.assertRaises(grpc.RpcError) as caught:
                    call()
                self.assertEqual(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT, f"{what} {name}")
                self.assertTrue(error_info(caught.exception), f"{what} {name}")
        # Client ids may be any text.
        for number, client_id in enumerate(CLIENT_IDS):
            request = pb.AcquireRequest(semaphore=f"b/{number}", limit=2, ttl_ms=60_000)
            request.request_id.numbered.client_id = client_id
            request.request_id.numbered.sequence = 1
            first = self.stub.Acquire(request, **self.options)
            again = self.stub.Acquire(request, **self.options)
            self.assertEqual(first.lease.lease_id, again.lease.lease_id, client_id)
        allowed = ("/v1/txn", f"/v1/kv/{self.PREFIX}/", "/v1/session/", "/v1/catalog/register")
        for request in list(self.proxy.asked):
            self.assertTrue(request.path.startswith(allowed), request.path)
            self.assertNotIn("..", request.path.split("/"), request.path)

    def test_another_client_is_served_meanwhile(self):
        ended = threading.Event()

        def climb():
            while not ended.is_set():
                for name in NAMES:
                    try:
                        self.stub.Acquire(pb.AcquireRequest(semaphore=name, limit=1), **self.options)
                    except grpc.RpcError:
                        pass

        thread = threading.Thread(target=climb)
        thread.start()
        try:
            for _ in range(20):
                lease = self.stub.Acquire(
                    pb.AcquireRequest(semaphore="b/quiet", limit=1, wait_ms=10_000), **self.options).lease
                self.stub.Release(pb.ReleaseRequest(lease_id=lease.lease_id), **self.options)
        finally:
            ended.set()
            thread.join()


if __name__ == "__main__":
    unittest.main()
