"""TLS, identities, rules, quotas and the audit log, at the real daemon."""

import functools
import json
import os
import queue
import signal
import socket
import subprocess
import tempfile
import unittest

from certificates import Authority
from daemon import (BIN_DIR, BOUND_S, Client, Daemon, Reader, error_info, grpc, pb, pb_grpc,
                    wait_until)

UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
PERMISSION_DENIED = grpc.StatusCode.PERMISSION_DENIED
RESOURCE_EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


def program(*arguments, **options):
    return subprocess.run([os.path.join(BIN_DIR, "semaphored"), *arguments], check=False,
                          capture_output=True, text=True, timeout=60, **options)


def new_token():
    token, digest = program("token").stdout.split()
    return token, digest


def replace(path, data):
    """As a careful administrator does: the new file takes the old one's place at once."""
    with open(path + ".new", "wb") as file:
        file.write(data)
    os.rename(path + ".new", path)


class TlsDaemon(Daemon):
    """A daemon that is asked for its health by its own program, which knows how to reach it."""

    def is_serving(self):
        environment = {**os.environ, "SEMAPHORED_LISTEN": self.address}
        for key, value in self.settings.items():
            environment["SEMAPHORED_" + key.upper()] = str(value)
        return program("health", env=environment).returncode == 0

    def secure_channel(self, authority, pair=None):
        credentials = grpc.ssl_channel_credentials(
            authority.cert(), pair and pair.key(), pair and pair.cert())
        channel = grpc.secure_channel(self.address, credentials,
                                      (("grpc.use_local_subchannel_pool", 1),))
        self._channels.append(channel)
        return channel


def list_code(channel, token=None, bound_s=BOUND_S):
    """The code of a `list`, the cheapest call there is."""
    metadata = (("authorization", "Bearer " + token),) if token else ()
    try:
        pb_grpc.SemaphoreServiceStub(channel).Administer(
            pb.AdministerRequest(list=pb.ListSemaphores()), timeout=bound_s, metadata=metadata)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


class TlsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory(prefix="semaphored-tls-")
        cls.folder = cls.holder.name
        cls.authority = Authority(cls.folder, "ca")
        cls.clients = Authority(cls.folder, "client-ca")
        cls.foreign = Authority(cls.folder, "foreign-ca")
        cls.server = cls.authority.sign("server")

    @classmethod
    def tearDownClass(cls):
        cls.holder.cleanup()

    def settings(self, **more):
        return {"tls_cert_file": self.server.cert_file, "tls_key_file": self.server.key_file,
                **more}

    def peer_serial(self, address):
        """What a new connection is shown."""
        host, port = address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=BOUND_S):
            pass
        shown = subprocess.run(
            ["openssl", "s_client", "-connect", address, "-alpn", "h2"], input=b"", check=False,
            capture_output=True, timeout=60).stdout
        return subprocess.run(["openssl", "x509", "-noout", "-serial"], input=shown, check=True,
                              capture_output=True, timeout=60).stdout

    def test_tls_and_new_certificates_without_a_restart(self):
        with TlsDaemon(self.settings()) as daemon:
            standing = daemon.secure_channel(self.authority)
            self.assertEqual(list_code(standing), grpc.StatusCode.OK)
            self.assertEqual(list_code(daemon.secure_channel(self.foreign)), UNAVAILABLE)
            self.assertEqual(list_code(daemon.channel()), UNAVAILABLE)  # Without TLS.
            first = self.peer_serial(daemon.address)
            # Half of a pair: the old one stays in force, and the log says so.
            new = self.authority.sign("server2")
            old_cert = self.server.cert()
            replace(self.server.cert_file, new.cert())
            wait_until(lambda: "is not the key of the certificate" in daemon.log(), "it is logged")
            self.assertEqual(self.peer_serial(daemon.address), first)
            # The other half.
            replace(self.server.key_file, new.key())
            wait_until(lambda: self.peer_serial(daemon.address) != first, "the new certificate")
            self.assertEqual(list_code(standing), grpc.StatusCode.OK)
            self.assertEqual(list_code(daemon.secure_channel(self.authority)), grpc.StatusCode.OK)
            # Cut off in the middle, as by a full disk.
            replace(self.server.cert_file, old_cert[:len(old_cert) // 2])
            wait_until(lambda: "none of them cut off" in daemon.log(), "it is logged")
            self.assertEqual(list_code(daemon.secure_channel(self.authority)), grpc.StatusCode.OK)
            replace(self.server.cert_file, new.cert())

    def test_clients_without_a_good_certificate_cannot_connect(self):
        good = self.clients.sign("good")
        expired = self.clients.sign("expired", days=-1)
        foreign = self.foreign.sign("good")
        # Its own must be good for `health`.
        server = self.clients.sign("both")
        settings = {"tls_cert_file": server.cert_file, "tls_key_file": server.key_file,
                    "tls_client_ca_file": self.clients.cert_file}
        with TlsDaemon(settings) as daemon:
            self.assertEqual(list_code(daemon.secure_channel(self.clients, good)),
                             grpc.StatusCode.OK)
            for what, pair in (("none", None), ("expired", expired), ("foreign", foreign)):
                with self.subTest(what):
                    channel = daemon.secure_channel(self.clients, pair)
                    self.assertEqual(list_code(channel), UNAVAILABLE)

    def test_optional_certificates_name_identities(self):
        access = os.path.join(self.folder, "access.toml")
        token, digest = new_token()
        with open(access, "w", encoding="utf-8") as file:
            file.write(f"""
                [identities.by-uri]
                certificates = ["uri:spiffe://test/a"]
                rules = [{{ prefixes = ["a/"], verbs = ["acquire"] }}]
                [identities.by-token]
                tokens = ["{digest}"]
                rules = [{{ prefixes = ["b/"], verbs = ["acquire"] }}]
            """)
        named = self.clients.sign("someone", "URI:spiffe://test/a")
        unnamed = self.clients.sign("nobody", "DNS:spiffe.test.a")
        foreign = self.foreign.sign("foreigner", "URI:spiffe://test/a")
        settings = self.settings(tls_client_ca_file=self.clients.cert_file,
                                 tls_client_certificates="optional", access_file=access)
        with TlsDaemon(settings) as daemon:
            def code(pair, semaphore, token=None):
                stub = pb_grpc.SemaphoreServiceStub(daemon.secure_channel(self.authority, pair))
                metadata = (("authorization", "bearer " + token),) if token else ()
                try:
                    stub.Acquire(pb.AcquireRequest(semaphore=semaphore, limit=9), timeout=BOUND_S,
                                 metadata=metadata)
                except grpc.RpcError as error:
                    return error.code()
                return grpc.StatusCode.OK

            self.assertEqual(code(named, "a/1"), grpc.StatusCode.OK)
            self.assertEqual(code(named, "b/1"), PERMISSION_DENIED)
            self.assertEqual(code(named, "b/1", token), grpc.StatusCode.OK)  # The token counts.
            self.assertEqual(code(named, "a/1", token), PERMISSION_DENIED)
            self.assertEqual(code(named, "a/1", token + "x"), UNAUTHENTICATED)
            self.assertEqual(code(None, "b/1", token), grpc.StatusCode.OK)
            self.assertEqual(code(None, "a/1"), UNAUTHENTICATED)
            self.assertEqual(code(unnamed, "a/1"), UNAUTHENTICATED)
            self.assertEqual(code(foreign, "a/1"), UNAVAILABLE)
            # The log says where they came from, and nothing of what they showed.
            daemon.wait_log(" was refused: ")
            self.assertRegex(daemon.log(), r"warning +a call from ipv4:127\.0\.0\.1:\d+ was refused: ")
            self.assertNotIn(token, daemon.log())

    def test_files_that_are_wrong_end_the_start(self):
        other = self.authority.sign("other")
        missing = os.path.join(self.folder, "missing.pem")
        cases = [
            ({"tls_cert_file": missing}, "tls_cert_file"),
            ({"tls_key_file": missing}, "tls_key_file"),
            ({"tls_cert_file": self.server.key_file}, "tls_cert_file"),
            ({"tls_key_file": self.server.cert_file}, "tls_key_file"),
            ({"tls_key_file": other.key_file}, "tls_key_file"),
            ({"tls_client_ca_file": missing}, "tls_client_ca_file"),
            ({"tls_client_ca_file": self.folder}, "is not a file"),
            ({"tls_cert_file": ""}, "must be set together"),
            ({"access_file": missing}, "access_file"),
            ({"access_file": self.server.cert_file}, "access_file"),
            ({"audit_file": os.path.join(missing, "x")}, "audit_file"),
        ]
        for settings, names in cases:
            with self.subTest(str(settings)):
                environment = dict(os.environ)
                for key, value in self.settings(**settings).items():
                    environment["SEMAPHORED_" + key.upper()] = value
                done = program("--store", "sqlite::memory:", "--listen", "127.0.0.1:0",
                               env=environment)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(names, done.stderr)


ALL = ("acquire", "verify", "work", "administer")
ADMINISTER = ("administer",)
SEES = ("verify", "administer")

# Each act of Administer, and the verbs of which it needs one.
ACTS = {
    "create": (pb.CreateSemaphore(limit=1), ADMINISTER),
    "resize": (pb.ResizeSemaphore(limit=50), ADMINISTER),
    "configure": (pb.ConfigureSemaphore(), ADMINISTER),
    "drain": (pb.DrainSemaphore(held_max=1000), ADMINISTER),
    "resume": (pb.ResumeSemaphore(), ADMINISTER),
    "pause": (pb.PauseSemaphore(), ADMINISTER),
    "revoke": (pb.RevokeLeases(holder="nobody"), ADMINISTER),
    "prune": (pb.PruneSemaphore(), ADMINISTER),
    "cancel_ticket": (pb.CancelTicket(ticket_id="1" * 32), ADMINISTER),
    "prioritise_ticket": (pb.PrioritiseTicket(ticket_id="1" * 32), ADMINISTER),
    "requeue_tickets": (pb.RequeueTickets(ticket_id="1" * 32), ADMINISTER),
    "purge_tickets": (pb.PurgeTickets(ticket_id="1" * 32), ADMINISTER),
    "describe": (pb.DescribeSemaphore(), SEES),
    "history": (pb.ListHistory(), SEES),
    "list_tickets": (pb.ListTickets(), ("verify", "work", "administer")),
    "show_ticket": (pb.ShowTicket(ticket_id="1" * 32), ("work", "administer")),
    "adopt": (pb.AdoptSemaphore(), ADMINISTER),
    "destroy": (pb.DestroySemaphore(), ADMINISTER),
}


class Bearer(Client):
    """A client that shows a token with every call."""

    class Stub:
        """Its methods are the stub's, with the metadata."""

        def __init__(self, stub, metadata):
            self._stub = stub
            self._metadata = metadata

        def __getattr__(self, name):
            method = getattr(self._stub, name)
            shown = functools.partial(method, metadata=self._metadata)
            if hasattr(method, "future"):
                shown.future = functools.partial(method.future, metadata=self._metadata)
            return shown

    def __init__(self, channel, token):
        super().__init__(channel)
        self.stub = self.Stub(self.stub, (("authorization", "Bearer " + token),) if token else ())

    def code(self, method, request):
        """What becomes of a call; of a stream, what its first message says."""
        try:
            answer = getattr(self.stub, method)(request, timeout=BOUND_S)
            if hasattr(answer, "cancel"):
                next(answer)
                answer.cancel()
        except grpc.RpcError as error:
            return error.code()
        return grpc.StatusCode.OK


class AccessTest(unittest.TestCase):
    """One daemon, and an identity for each verb at t/, and two tenants."""

    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory(prefix="semaphored-access-")
        cls.access = os.path.join(cls.holder.name, "access.toml")
        cls.audit = os.path.join(cls.holder.name, "audit.jsonl")
        cls.tokens = {}
        cls.hashes = {}
        for name in (*ALL, "tenant-a", "tenant-b", "root"):
            cls.tokens[name], cls.hashes[name] = new_token()
        cls.write_access()
        cls.daemon = Daemon({"access_file": cls.access, "audit_file": cls.audit,
                             "resume_grace": "100ms"})
        cls.daemon.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.daemon.__exit__(None, None, None)
        cls.holder.cleanup()

    @classmethod
    def write_access(cls, without=(), permits=20):
        text = ""
        for verb in ALL:
            text += (f'[identities.{verb}]\ntokens = ["{cls.hashes[verb]}"]\n'
                     f'rules = [{{ prefixes = ["t/"], verbs = ["{verb}"] }}]\n')
        for tenant in ("tenant-a", "tenant-b"):
            text += (f'[identities.{tenant}]\ntokens = ["{cls.hashes[tenant]}"]\n'
                     f'rules = [{{ prefixes = ["{tenant}/", "shared/"], '
                     f'verbs = ["acquire", "verify", "work"] }}]\n'
                     f'quotas = {{ permits = {permits}, waiters = 5, sessions = 2 }}\n')
        text += (f'[identities.root]\ntokens = ["{cls.hashes["root"]}"]\n'
                 'rules = [{ prefixes = [""], verbs = ["administer"] }]\n')
        for name in without:
            text = text.replace(cls.hashes[name], cls.hashes[name][:-8] + "00000000")
        replace(cls.access, text.encode())

    def client(self, name):
        return Bearer(self.daemon.channel(), self.tokens.get(name))

    def audit_lines(self):
        with open(self.audit, encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def requests(self, semaphore, lease_id):
        """Of each method but Administer: a request, and the verbs of which it needs one."""
        open_session = pb.SessionRequest(open=pb.OpenSession(client_id="c"))
        work = pb.OpenWork(client_id="w", semaphores=[semaphore], tickets_max=1)
        work_under = pb.OpenWork(client_id="w", prefixes=["t/"], tickets_max=1)
        too_wide = pb.OpenWork(client_id="w", prefixes=["t"], tickets_max=1)
        acquire = pb.AcquireRequest(semaphore=semaphore, limit=100)
        return [
            ("Acquire", acquire, ("acquire",)),
            ("Hold", pb.HoldRequest(acquire=acquire), ("acquire",)),
            ("Renew", pb.RenewRequest(lease_id=lease_id), ("acquire", "work")),
            ("Release", pb.ReleaseRequest(lease_id=lease_id), ("acquire", "work", "administer")),
            ("Verify", pb.VerifyRequest(lease_id=lease_id), ALL),
            ("Verify", pb.VerifyRequest(semaphore=semaphore, slot=1, token=1), SEES),
            ("Enqueue", pb.EnqueueRequest(semaphore="t/tickets", limit=1), ("work",)),
            ("Watch", pb.WatchRequest(semaphore=semaphore), SEES),
            ("Session", iter([open_session]), ALL),
            ("DescribeDaemon", pb.DescribeDaemonRequest(), ALL),
            ("Work", iter([pb.WorkRequest(open=work)]), ("work",)),
            ("Work", iter([pb.WorkRequest(open=work_under)]), ("work",)),
            ("Work", iter([pb.WorkRequest(open=too_wide)]), ()),
        ]

    def test_each_method_needs_its_verb(self):
        for semaphore in ("t/known", "t/known/not"):
            # Whether it exists makes no difference to who is let through.
            if semaphore == "t/known":
                self.client("acquire").acquire(semaphore, limit=100)
            for verb in ALL:
                lease_id = f"{semaphore}#" + "0" * 31 + "1"
                for method, request, verbs in self.requests(semaphore, lease_id):
                    with self.subTest(f"{method} {semaphore} with {verb}"):
                        code = self.client(verb).code(method, request)
                        self.assertNotEqual(code, UNAUTHENTICATED)
                        self.assertEqual(code == PERMISSION_DENIED, verb not in verbs, code)

    def test_each_act_needs_its_verb(self):
        semaphore = "t/acts"
        for act, (message, verbs) in ACTS.items():
            for verb in ALL:
                with self.subTest(f"{act} with {verb}"):
                    request = pb.AdministerRequest(semaphore=semaphore, **{act: message})
                    code = self.client(verb).code("Administer", request)
                    self.assertNotEqual(code, UNAUTHENTICATED)
                    self.assertEqual(code == PERMISSION_DENIED, verb not in verbs, code)
                    elsewhere = pb.AdministerRequest(semaphore="elsewhere", **{act: message})
                    self.assertEqual(self.client(verb).code("Administer", elsewhere),
                                     PERMISSION_DENIED)
        fields = [field.name for field in pb.AdministerRequest.DESCRIPTOR.oneofs_by_name["act"].fields]
        self.assertEqual(sorted(fields), sorted([*ACTS, "list"]), "every act stands in the table")

    def test_who_is_not_known_is_told_nothing(self):
        said = set()
        shown = (None, "Bearer", "Bearer ", "Bearer nonsense", "Bearer " + self.hashes["root"],
                 "Basic " + self.tokens["root"], "Bearer " + self.tokens["root"] + " ")
        for value in shown:
            metadata = () if value is None else (("authorization", value),)
            stub = pb_grpc.SemaphoreServiceStub(self.daemon.channel())
            for method, request, _ in self.requests("t/known", "t/known#" + "1" * 32):
                with self.subTest(f"{method} with {value}"):
                    with self.assertRaises(grpc.RpcError) as raised:
                        answer = getattr(stub, method)(request, timeout=BOUND_S, metadata=metadata)
                        if hasattr(answer, "cancel"):
                            next(answer)
                    error = raised.exception
                    self.assertEqual(error.code(), UNAUTHENTICATED)
                    said.add((error.details(), str(error_info(error))))
        self.assertEqual(len(said), 1, said)
        # Health needs no identity: the daemon was waited for with it.
        self.assertTrue(self.daemon.is_serving())

    def test_list_and_watch_show_what_may_be_seen(self):
        tenants = {name: self.client(name) for name in ("tenant-a", "tenant-b")}
        for name, client in tenants.items():
            for i in range(3):
                client.release(client.acquire(f"{name}/seen-{i}", limit=1).lease_id)
        everything = {i.semaphore for i in self.client("root").administer(
            "", list=pb.ListSemaphores(page_size=10000)).semaphores}
        self.assertTrue({"tenant-a/seen-1", "tenant-b/seen-1"} <= everything)
        listed, token = [], ""
        while True:  # By pages, over the bounds of the two prefixes.
            page = tenants["tenant-a"].administer(
                "", list=pb.ListSemaphores(page_size=2, page_token=token))
            listed += [i.semaphore for i in page.semaphores]
            token = page.next_page_token
            if not token:
                break
        may = sorted(n for n in everything if n.startswith(("tenant-a/", "shared/")))
        self.assertEqual(listed, may)
        self.assertEqual(len(tenants["tenant-a"].administer(
            "", list=pb.ListSemaphores(prefix="tenant-b/")).semaphores), 0)
        reader = Reader(tenants["tenant-a"].stub.Watch(pb.WatchRequest()))
        reader.until(lambda e: e.semaphore.semaphore == "tenant-a/seen-2", "its snapshot")
        seen = []

        def passes(event):
            seen.append(event.semaphore.semaphore)
            return (event.kind == pb.WATCH_EVENT_KIND_ENDED
                    and event.semaphore.semaphore == "tenant-a/x")

        other = tenants["tenant-b"].acquire("tenant-b/seen-0", limit=1)
        tenants["tenant-b"].release(other.lease_id)
        lease = tenants["tenant-a"].acquire("tenant-a/x", limit=1)
        tenants["tenant-a"].release(lease.lease_id)
        reader.until(passes, "what it did itself")
        self.assertEqual([n for n in seen if not n.startswith(("tenant-a/", "shared/"))], [])
        reader.call.cancel()

    def test_what_is_anothers_does_not_exist(self):
        a, b, root = self.client("tenant-a"), self.client("tenant-b"), self.client("root")
        lease = a.acquire("shared/one", limit=5, holder="of a")
        # A request of the same client id and number is another's, not a repeated one.
        b.client_id, b.sequence = a.client_id, a.sequence - 1
        other = b.acquire("shared/one", limit=5)
        self.assertNotEqual(other.lease_id, lease.lease_id)
        # Not below the window of a, which knows nothing of this one.
        b.sequence = 1_000_000
        b.release(other.lease_id)
        a.release(a.acquire("shared/one", limit=5).lease_id)
        # Shown to its owner and to administrators, and session ids to nobody else.
        of_a = lambda client: next(row.lease for row in client.describe_rows("shared/one").leases
                                   if row.lease.holder == "of a")
        self.assertEqual(of_a(a).lease_id, lease.lease_id)
        self.assertEqual(of_a(b).lease_id, "")
        self.assertEqual(of_a(root).lease_id, lease.lease_id)
        by_slot = pb.VerifyRequest(semaphore="shared/one", slot=lease.slots[0].first,
                                   token=lease.token)
        self.assertTrue(b.stub.Verify(by_slot, timeout=BOUND_S).held)
        self.assertEqual(b.stub.Verify(by_slot, timeout=BOUND_S).lease.lease_id, "")
        # Somebody who has got hold of the id all the same.
        self.assertFalse(b.verify(lease.lease_id).held)
        self.assertEqual(b.release(lease.lease_id).released, 0)
        self.assertEqual(b.code("Renew", pb.RenewRequest(lease_id=lease.lease_id)),
                         grpc.StatusCode.NOT_FOUND)
        self.assertTrue(a.verify(lease.lease_id).held)
        session = Stream(a)
        opened = session.opened()
        session.send(commands=[pb.SessionCommand(sequence=10_000, acquire=pb.SessionAcquire(
            semaphore="shared/one", holder="in a session"))])
        held = session.reader.until(lambda m: m.results, "a grant").results[0].granted
        thief = Stream(b, resume_session_id=opened.session_id)
        end = thief.reader.end()
        self.assertEqual((end.code(), error_info(end).reason),
                         (grpc.StatusCode.NOT_FOUND, "SESSION_LOST"))
        self.assertTrue(a.verify(held.lease_id).held)
        for row in root.describe_rows("shared/one").leases:
            self.assertEqual(row.lease.session_id, "")
        session.send(close=True)
        self.assertIsNone(session.reader.end())
        self.assertEqual(root.release(lease.lease_id).released, 1)
        wait_until(lambda: [e for e in self.audit_lines() if e["act"] == "release"
                            and e["identity"] == "root" and "tenant-a" in str(e["old"])],
                   "an administrator's release in the audit log")

    def test_one_tenant_cannot_starve_another(self):
        a, b = self.client("tenant-a"), self.client("tenant-b")
        first = a.acquire("shared/hall", limit=2)
        second = a.acquire("shared/hall", limit=2)
        waiting = [a.acquire_later("shared/hall", limit=2) for _ in range(30)]
        wait_until(lambda: sum(call.done() for call in waiting) >= 25, "what is too much is refused")
        refused = [call for call in waiting if call.done()]
        self.assertEqual({call.code() for call in refused}, {RESOURCE_EXHAUSTED})
        self.assertEqual({error_info(call).reason for call in refused}, {"QUOTA"})
        self.assertEqual(len(refused), 25)
        # The other stands behind five, not behind thirty, and has all of its own quota elsewhere.
        b_waits = b.acquire_later("shared/hall", limit=2)
        b.wait_for_queue("shared/hall", 6)
        for client, own in ((a, "tenant-a/own"), (b, "tenant-b/own")):
            leases = []
            with self.assertRaises(grpc.RpcError) as raised:
                for _ in range(100):
                    leases.append(client.acquire(own, limit=100))
            self.assertEqual(error_info(raised.exception).reason, "QUOTA")
            self.assertEqual(len(leases), 20 - (7 if client is a else 1))
            for lease in leases:
                client.release(lease.lease_id)
        for lease in (first, second):
            a.release(lease.lease_id)
        def serve():  # Whoever of a is served gives his permit back.
            for call in [call for call in waiting if call.done()]:
                waiting.remove(call)
                if call.code() == grpc.StatusCode.OK:
                    a.release(call.result().lease.lease_id)
            return b_waits.done()

        wait_until(serve, "the other is served")
        self.assertEqual(b.release(b_waits.result().lease.lease_id).released, 1)
        for call in waiting:
            call.cancel()
        sessions = [Stream(a) for _ in range(2)]
        for session in sessions:
            session.opened()
        self.assertEqual(error_info(Stream(a).reader.end()).reason, "QUOTA")
        Stream(b).opened()
        for session in sessions:
            session.send(close=True)
            self.assertIsNone(session.reader.end())

    def test_each_act_is_written_down(self):
        root, tenant = self.client("root"), self.client("tenant-a")
        with open(self.audit, encoding="utf-8") as file:
            before = len(file.readlines())
        root.administer("audit/x", create=pb.CreateSemaphore(limit=5))
        lease_id = "audit/x#" + "ab" * 16
        root.administer("audit/x", resize=pb.ResizeSemaphore(limit=3))
        root.administer("audit/x", revoke=pb.RevokeLeases(lease_id=lease_id, now=True))
        root.describe("audit/x")
        self.assertEqual(tenant.code("Administer", pb.AdministerRequest(
            semaphore="audit/x", destroy=pb.DestroySemaphore(policy=pb.DESTROY_POLICY_FORCE))),
            PERMISSION_DENIED)
        root.administer("audit/x", destroy=pb.DestroySemaphore())
        # Nothing of the refused one's request is in it.
        lines = wait_until(lambda: (lambda found: found if len(found) == 5 else None)(
            [line for line in self.audit_lines()[before:] if line["semaphore"] in ("audit/x", None)]),
            "five lines")
        create, resize, revoke, refused, destroy = lines
        self.assertEqual([line["act"] for line in lines],
                         ["create", "resize", "revoke", "destroy", "destroy"])
        self.assertEqual([line["identity"] for line in lines],
                         ["root", "root", "root", "tenant-a", "root"])
        self.assertTrue(all(line["peer"].startswith("ipv4:127.0.0.1:") for line in lines))
        self.assertIsNone(create["old"])
        self.assertEqual(create["new"]["limit"], 5)
        self.assertEqual((resize["old"]["limit"], resize["new"]["limit"]), (5, 3))
        self.assertEqual(resize["asked"], {"resize": {"limit": 3}})
        self.assertNotIn(lease_id, json.dumps(revoke))
        self.assertEqual((refused["outcome"], refused["reason"], refused["semaphore"]),
                         ("PERMISSION_DENIED", "PERMISSION_DENIED", None))
        self.assertEqual((destroy["outcome"], destroy["old"]["limit"], destroy["new"]),
                         ("OK", 3, None))
        self.assertEqual(os.stat(self.audit).st_mode & 0o777, 0o600)
        for token in self.tokens.values():
            self.assertNotIn(token, self.daemon.log())

    def test_sighup_reads_all_files_and_opens_the_audit_log_anew(self):
        moved = self.audit + ".1"
        os.rename(self.audit, moved)
        self.addCleanup(self.put_back, moved)
        self.daemon.signal(signal.SIGHUP)
        wait_until(lambda: os.path.exists(self.audit), "a new audit log")
        wait_until(lambda: "SIGHUP: certificates and rules were read" in self.daemon.log(),
                   "the log")
        self.client("root").administer("audit/rotated", create=pb.CreateSemaphore(limit=5))
        wait_until(lambda: [line["semaphore"] for line in self.audit_lines()] == ["audit/rotated"],
                   "the act in the new file")
        with open(moved, encoding="utf-8") as file:
            self.assertNotIn("audit/rotated", file.read())

    def put_back(self, moved):
        """What was written before comes first again, for the other tests."""
        with open(self.audit, encoding="utf-8") as file:
            new = file.read()
        with open(moved, "a", encoding="utf-8") as file:
            file.write(new)
        os.rename(moved, self.audit)
        before = self.daemon.log().count("SIGHUP: certificates and rules were read")
        self.daemon.signal(signal.SIGHUP)
        wait_until(lambda: self.daemon.log().count("SIGHUP: certificates and rules were read") >
                   before, "the log")

    def test_zz_a_changed_file_counts_at_once_for_streams_too(self):
        b = self.client("tenant-b")
        session = Stream(b)
        session.opened()
        watch = Reader(b.stub.Watch(pb.WatchRequest(prefix="tenant-b/")))
        # A file that is wrong changes nothing.
        replace(self.access, b"[identities.nobody]\ntoken = []\n")
        wait_until(lambda: "identities.nobody.token is not known" in self.daemon.log(), "the log")
        self.assertEqual(b.code("Acquire", pb.AcquireRequest(semaphore="tenant-b/z", limit=9)),
                         grpc.StatusCode.OK)
        self.write_access(without=["tenant-b"])
        wait_until(lambda: b.code("Acquire", pb.AcquireRequest(
            semaphore="tenant-b/z", limit=99)) == UNAUTHENTICATED, "its token is not known any more")
        session.send(ping=pb.SessionPing(ping_id=1))
        self.assertEqual(session.reader.end().code(), UNAUTHENTICATED)
        self.client("root").administer("tenant-b/z", pause=pb.PauseSemaphore())
        self.assertEqual(watch.end().code(), UNAUTHENTICATED)
        self.write_access(permits=1)
        wait_until(lambda: b.code("Verify", pb.VerifyRequest(
            semaphore="tenant-b/z", slot=1, token=1)) == grpc.StatusCode.OK, "it is known again")


class Stream:
    """A Session of a client that shows a token."""

    def __init__(self, client, **fields):
        self._requests = queue.Queue()
        self.send(open=pb.OpenSession(client_id=client.client_id, **fields))
        self.reader = Reader(client.stub.Session(iter(self._requests.get, None)))

    def send(self, **fields):
        self._requests.put(pb.SessionRequest(**fields))

    def opened(self):
        return self.reader.until(lambda m: m.HasField("opened"), "opened").opened


if __name__ == "__main__":
    unittest.main()
