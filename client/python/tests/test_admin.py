"""Administration without a daemon: which result belongs to which act, pages, times."""

import inspect
import unittest

import semaphored
from semaphored._admin import Admin, AsyncAdmin
from semaphored.v1 import semaphore_pb2 as pb

# The other methods, with the values that they must be given.
ACTS = {
    "create": ("a", 1), "set_limit": ("a", 1), "configure": ("a", pb.SemaphoreSettings()),
    "destroy": ("a",), "drain": ("a",), "pause": ("a",), "resume": ("a",),
    "revoke_lease": ("a", "L1"), "revoke_holder": ("a", "h"), "revoke_all": ("a",),
    "prune": ("a",), "adopt": ("a",), "describe": ("a",), "list": (), "history": ("a",)}
LISTINGS = {"describe_pages": ("a",), "list_all": (), "history_all": ("a",)}


def names_of(kind):
    return [name for name in vars(kind) if not name.startswith("_")]


class FakeDaemon:
    """Answers each act with a result of its kind, the listings in three pages."""

    def __init__(self):
        self.requests = []

    def call(self, request, _):
        self.requests.append(request)
        act = request.WhichOneof("act")
        response = pb.AdministerResponse()
        result = getattr(response, act)
        result.SetInParent()
        if hasattr(result, "next_page_token"):
            token = getattr(getattr(request, act), "page_token", "")
            result.next_page_token = {"": "1", "1": "2", "2": ""}[token]
        for rows in ("semaphores", "rows"):
            if hasattr(result, rows):
                getattr(result, rows).add()
        return response

    async def call_async(self, request, wait):
        return self.call(request, wait)


class Administration(unittest.IsolatedAsyncioTestCase):

    def setUp(self):
        self.daemon = FakeDaemon()
        self.admin = Admin(self.daemon.call)
        self.admin_of_asyncio = AsyncAdmin(self.daemon.call_async)

    def test_both_classes_have_the_same_methods(self):
        self.assertEqual(names_of(Admin), names_of(AsyncAdmin))
        self.assertCountEqual(names_of(Admin), [*ACTS, *LISTINGS, "administer"])
        for name in names_of(Admin):
            one, other = (inspect.signature(getattr(kind, name)) for kind in (Admin, AsyncAdmin))
            self.assertEqual(one.parameters, other.parameters, name)
            self.assertIn(other.return_annotation,
                          (one.return_annotation, "Async" + one.return_annotation), name)

    async def test_each_act_has_its_own_result(self):
        for name, values in ACTS.items():
            result = getattr(self.admin, name)(*values)
            said = inspect.signature(getattr(Admin, name)).return_annotation
            self.assertEqual("pb." + type(result).__name__, said)
            self.assertEqual(await getattr(self.admin_of_asyncio, name)(*values), result)
            self.assertEqual(self.daemon.requests[-1], self.daemon.requests[-2])

    def test_another_answer_is_an_error(self):
        for answer in (pb.AdministerResponse(),
                       pb.AdministerResponse(pause=pb.PauseSemaphoreResult())):
            with self.assertRaises(semaphored.InternalError):
                Admin(lambda *_, answer=answer: answer).prune("a")

    async def test_listings_go_through_all_pages(self):
        for name, values in LISTINGS.items():
            self.assertEqual(len(list(getattr(self.admin, name)(*values, page_size=1))), 3)
            asked = [getattr(request, request.WhichOneof("act"))
                     for request in self.daemon.requests[-3:]]
            self.assertEqual([(each.page_size, each.page_token) for each in asked],
                             [(1, ""), (1, "1"), (1, "2")])
            many = getattr(self.admin_of_asyncio, name)(*values, page_size=1)
            self.assertEqual(len([each async for each in many]), 3)
            self.assertEqual(self.daemon.requests[-3:], self.daemon.requests[-6:-3])

    def test_now_is_said_and_not_the_default(self):
        for name, values, act in (
                ("revoke_lease", ("a", "L1"), "revoke"), ("revoke_holder", ("a", "h"), "revoke"),
                ("revoke_all", ("a",), "revoke"), ("set_limit", ("a", 1), "resize"),
                ("destroy", ("a",), "destroy")):
            for now in (False, True):
                getattr(self.admin, name)(*values, **({"now": True} if now else {}))
                self.assertEqual(getattr(self.daemon.requests[-1], act).now, now, name)

    def test_times(self):
        for grace, expected in ((None, (False, 0)), (0, (True, 0)), (1.5, (True, 1_500))):
            self.admin.set_limit("a", 1, grace=grace)
            resize = self.daemon.requests[-1].resize
            self.assertEqual((resize.HasField("grace_ms"), resize.grace_ms), expected)
        for grace, expected_ms in ((None, 0), (1.5, 1_500)):
            self.admin.revoke_all("a", grace=grace)
            self.assertEqual(self.daemon.requests[-1].revoke.grace_ms, expected_ms)
            self.admin.destroy("a", grace=grace)
            self.assertEqual(self.daemon.requests[-1].destroy.grace_ms, expected_ms)
        for call in (lambda: self.admin.set_limit("a", 1, grace=-1),
                     lambda: self.admin.revoke_all("a", grace=1 << 32),
                     lambda: self.admin.revoke_all("a", grace=0),
                     lambda: self.admin.destroy("a", grace=0),
                     lambda: self.admin.drain("a", wait=float("inf")),
                     lambda: self.admin.destroy("a", wait=-0.1)):
            with self.assertRaises(semaphored.InvalidArgumentError):
                call()


if __name__ == "__main__":
    unittest.main()
