"""A crowd of clients, with nothing but the generated stub, that go on at another daemon when theirs
fails them, keep to the rule for their deadline, and write down what they saw for checker.py.

The rule: a lease is good until the client's own time at which it sent the call + elapsed_ms +
valid_for_ms, less a margin. A client whose lease has run out by that stops its work.

Three kinds: `Detached` (Acquire, Renew, Release), `Holding` (Hold, Release), `InSession` (Session).
"""

import asyncio
import collections
import contextlib
import multiprocessing
import os
import random
import signal
import time
import uuid

from checker import Grant
from daemon import error_info, grpc, numbered, pb, pb_grpc, reason_of, slots_of
from fenced import Resource, Stale

MARGIN = 0.01  # Of valid_for_ms.
CALL_S = 3.0  # Of a call that does not wait in a queue.
WAIT_S = 30.0  # Of one that does; then it is sent again.
# A daemon that is paused is noticed within two seconds.
CHANNEL_OPTIONS = (
    ("grpc.keepalive_time_ms", 1000), ("grpc.keepalive_timeout_ms", 1000),
    ("grpc.keepalive_permit_without_calls", 1), ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1))
# What is said when nothing is known to have been done: the same request again, elsewhere.
AGAIN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED,
         grpc.StatusCode.CANCELLED)


class Gone(Exception):
    """The daemon says that the lease, or the session, has ended."""


def now_ns():
    return time.monotonic_ns()


def good_until_ns(sent_ns, validity):
    return sent_ns + int((validity.elapsed_ms + validity.valid_for_ms * (1 - MARGIN)) * 1e6)


def reason(error):
    info = error_info(error)
    return info.reason if info is not None else ""


class Place:
    """Where the clients of one process work, and for how long."""

    def __init__(self, plan):
        self.semaphore = plan["semaphore"]
        self.limit = plan["limit"]
        self.ttl_ms = plan["ttl_ms"]
        self.addresses = plan["addresses"]
        self.resource = Resource(plan["folder"])
        self.channels = []
        for address in self.addresses:
            self.channels.append(
                grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS))
        self.stubs = [pb_grpc.SemaphoreServiceStub(channel) for channel in self.channels]
        self.grants = []
        self.unexpected = []
        self.refused = collections.Counter()
        self.stopping = asyncio.Event()

    async def close(self):
        for channel in self.channels:
            await channel.close(None)


class Client:
    """One client: cycles of asking, working and giving back. Subclasses know how to ask."""

    def __init__(self, place, number):
        self.place = place
        self.name = f"{type(self).__name__} {number}"
        self.client_id = uuid.uuid4().hex
        self.sequence = 0
        self.endpoint = number % len(place.stubs)
        self.random = random.Random(number)
        self._forget()

    def _forget(self):
        self.lease = None
        self.asked_ns = self.queued_ns = self.until_ns = self.epoch = self.lost_ns = 0
        self.steady = True

    async def run(self):
        """Until the crowd is asked to stop. Who waits then is cancelled by the caller."""
        while not self.place.stopping.is_set():
            self._forget()
            self.choose()
            self.asked_ns = now_ns()
            try:
                await self.acquire()
            except Gone:
                continue  # It ended before we were told of it.
            await self._hold()
            # Not all at once again.
            await asyncio.sleep(self.random.uniform(0, 0.5))

    def choose(self):
        """Each time perhaps another daemon, so that all are used again after a failure."""
        self.endpoint = self.random.randrange(len(self.place.stubs))

    async def _hold(self):
        granted_ns, steady = now_ns(), self.steady
        where = self.place.addresses[self.endpoint]
        await self.keeping(self._work())
        release_ns = now_ns()
        self.place.grants.append(Grant(
            client=self.name, slots=tuple(slots_of(self.lease.slots)), token=self.lease.token,
            asked_ns=self.asked_ns, granted_ns=granted_ns,
            ended_ns=min(release_ns, self.until_ns), queued_ns=self.queued_ns, steady=steady,
            lost_ns=self.lost_ns, where=where))
        with contextlib.suppress(Gone):
            await self.release()

    async def _work(self):
        """Some short, some for longer than the TTL; never past the deadline."""
        slots, token = slots_of(self.lease.slots), self.lease.token
        long = self.random.random() < 0.02
        end_ns = now_ns() + int(1e9 * self.random.uniform(0.5, 1.5)
                                * (1.2 * self.place.ttl_ms / 1000 if long else 0.06))
        try:
            if now_ns() >= self.until_ns:
                return
            seen = [self.place.resource.read(slot, token) for slot in slots]
            while now_ns() < end_ns:
                if self.lost_ns or now_ns() >= self.until_ns:
                    return
                await asyncio.sleep(min(0.05, max(0, (end_ns - now_ns()) / 1e9)))
            for slot, value in zip(slots, seen):
                if not self.lost_ns and now_ns() < self.until_ns:
                    self.place.resource.write(slot, token, value)
        except Stale:
            pass  # Paused between a look at the clock and the act: the resource keeps count.

    def heard(self, sent_ns, validity):
        """An answer about the lease; one from before it moved is ignored."""
        if validity.epoch >= self.epoch:
            self.epoch = validity.epoch
            self.until_ns = max(self.until_ns, good_until_ns(sent_ns, validity))

    def next_id(self):
        self.sequence += 1
        return numbered(self.client_id, self.sequence)

    def acquire_request(self):
        return pb.AcquireRequest(
            request_id=self.next_id(), semaphore=self.place.semaphore, limit=self.place.limit,
            limit_mismatch=pb.LIMIT_MISMATCH_ADOPT, wait_forever=True, ttl_ms=self.place.ttl_ms,
            holder=self.name)

    def stub(self):
        return self.place.stubs[self.endpoint]

    async def elsewhere(self):
        self.steady = False
        self.endpoint = (self.endpoint + 1) % len(self.place.stubs)
        await asyncio.sleep(self.random.uniform(0.02, 0.2))

    async def ask(self, method, request, timeout_s):
        """The answer of whichever daemon gives one, and when it was asked. Raises Gone."""
        while True:
            sent_ns = now_ns()
            try:
                return await getattr(self.stub(), method)(request, timeout=timeout_s), sent_ns
            except grpc.aio.AioRpcError as error:
                self.judge(error)
            await self.elsewhere()

    def judge(self, error):
        """Returns if the request is to be sent again."""
        self.place.refused[f"{error.code().name} {reason(error)}".rstrip()] += 1
        if reason(error) in ("NOT_HELD", "SESSION_LOST"):
            raise Gone() from error
        if error.code() not in AGAIN:
            self.place.unexpected.append(f"{self.name}: {error.code().name} {error.details()}")
            raise error

    async def release(self):
        """Only once is it given back: an answer that another release was first is a fault."""
        request = pb.ReleaseRequest(request_id=self.next_id(), lease_id=self.lease.lease_id)
        await self.ask("Release", request, CALL_S)

    async def acquire(self):
        raise NotImplementedError

    async def keeping(self, work):
        """Awaits `work`, and keeps the lease alive meanwhile."""
        raise NotImplementedError


@contextlib.asynccontextmanager
async def in_background(coroutine):
    task = asyncio.ensure_future(coroutine)
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


class Detached(Client):

    async def acquire(self):
        response, sent_ns = await self.ask("Acquire", self.acquire_request(), WAIT_S)
        self.lease = response.lease
        self.heard(sent_ns, response.validity)

    async def keeping(self, work):
        async with in_background(self._renew()):
            await work

    async def _renew(self):
        request = pb.RenewRequest(lease_id=self.lease.lease_id)
        while True:
            await asyncio.sleep(self.place.ttl_ms / 3000)
            try:
                response, sent_ns = await self.ask("Renew", request, CALL_S)
            except Gone:
                self.lost_ns = now_ns()
                return
            self.heard(sent_ns, response.validity)


class Holding(Client):

    async def acquire(self):
        self.granted = asyncio.get_running_loop().create_future()
        self.reader = asyncio.ensure_future(self._read())
        try:
            await asyncio.wait((self.granted, self.reader), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not self.granted.done():
                await self._end_reader()
        if not self.granted.done():
            self.reader.result()  # Raises what ended it.
            raise Gone()

    async def keeping(self, work):
        await work

    async def release(self):
        await super().release()
        await self._end_reader()

    async def _end_reader(self):
        self.reader.cancel()
        with contextlib.suppress(asyncio.CancelledError, Gone, grpc.aio.AioRpcError):
            await self.reader

    async def _read(self):
        request = pb.HoldRequest(acquire=self.acquire_request(),
                                 beat_interval_ms=self.place.ttl_ms // 4)
        while True:
            sent_ns = now_ns()
            try:
                async for event in self.stub().Hold(request):
                    if self._take(event, sent_ns):
                        return
            except grpc.aio.AioRpcError as error:
                try:
                    self.judge(error)
                except Gone:
                    self.lost_ns = now_ns()
                    raise
            await self.elsewhere()

    def _take(self, event, sent_ns):
        """True: it was the last one."""
        kind = event.WhichOneof("event")
        if kind == "queued" and not self.queued_ns:
            self.queued_ns = now_ns()
        elif kind == "granted":
            self.heard(sent_ns, event.granted.validity)
            if not self.granted.done():
                self.lease = event.granted.lease
                self.granted.set_result(None)
            elif self.lease != event.granted.lease:
                self.place.unexpected.append(
                    f"{self.name}: {self.lease} became {event.granted.lease}")
        elif kind == "beat":
            self.heard(sent_ns, event.beat)
        elif kind == "lost":
            self.lost_ns = now_ns()
            return True
        return False


class InSession(Client):

    def __init__(self, place, number):
        super().__init__(place, number)
        self.session_id = ""
        self.session_until_ns = self.session_epoch = 0
        self.call = None
        self.writing = asyncio.Lock()
        self.sending = set()
        self.asked = {}  # By sequence number: commands without an answer, and who waits for it.

    async def run(self):
        async with in_background(self._stay_connected()), in_background(self._ping()):
            await super().run()

    def choose(self):
        """The session stays where it is."""

    async def acquire(self):
        result = await self._command(acquire=pb.SessionAcquire(
            semaphore=self.place.semaphore, limit=self.place.limit,
            limit_mismatch=pb.LIMIT_MISMATCH_ADOPT, wait_forever=True, holder=self.name,
            report_queued=True))
        self.lease = result.granted
        self.until_ns = self.session_until_ns
        self._ping_soon()

    async def keeping(self, work):
        await work

    async def release(self):
        await self._command(release=pb.SessionRelease(lease_id=self.lease.lease_id))

    async def _command(self, **command):
        self.sequence += 1
        sequence = self.sequence
        message = pb.SessionCommand(sequence=sequence, **command)
        answer = asyncio.get_running_loop().create_future()
        self.asked[sequence] = (message, answer)
        self._send_soon([message])
        try:
            return await answer
        finally:
            self.asked.pop(sequence, None)

    def _send_soon(self, commands=(), ping=None):
        """What cannot be sent is sent again when the session is resumed."""
        call = self.call

        async def send():
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                async with self.writing:
                    await call.write(pb.SessionRequest(commands=commands, ping=ping))
        if call is not None:
            task = asyncio.ensure_future(send())
            self.sending.add(task)  # The loop itself would forget it.
            task.add_done_callback(self.sending.discard)

    def _ping_soon(self):
        self._send_soon(ping=pb.SessionPing(ping_id=now_ns()))

    async def _ping(self):
        while True:
            await asyncio.sleep(self.place.ttl_ms / 4000)
            self._ping_soon()

    async def _stay_connected(self):
        while True:
            sent_ns = now_ns()
            self.call = None
            call = self.stub().Session()
            try:
                await call.write(pb.SessionRequest(open=pb.OpenSession(
                    client_id=self.client_id, ttl_ms=self.place.ttl_ms, holder=self.name,
                    resume_session_id=self.session_id)))
                async for message in call:
                    if message.HasField("opened"):
                        self._opened(call, message.opened, sent_ns)
                    self._take(message)
            except grpc.aio.AioRpcError as error:
                try:
                    self.judge(error)
                except Gone:
                    self._lose_session()
            finally:
                call.cancel()
            await self.elsewhere()

    def _opened(self, call, opened, sent_ns):
        self.call = call
        self.session_id = opened.session_id
        self._heard_session(sent_ns, opened.validity)
        if opened.resumed and self.lease is not None and not self._releasing() and \
                self.lease.lease_id not in [lease.lease_id for lease in opened.leases]:
            self.lost_ns = self.lost_ns or now_ns()
        if self.asked:
            self._send_soon([message for message, _ in self.asked.values()])

    def _releasing(self):
        return any(message.HasField("release") for message, _ in self.asked.values())

    def _lose_session(self):
        self.session_id = ""
        self.session_until_ns = self.session_epoch = 0
        if self.lease is not None and not self._releasing():
            self.lost_ns = self.lost_ns or now_ns()

    def _heard_session(self, sent_ns, validity):
        if validity.epoch >= self.session_epoch:
            self.session_epoch = validity.epoch
            self.session_until_ns = max(self.session_until_ns, good_until_ns(sent_ns, validity))
            self.until_ns = self.session_until_ns

    def _take(self, message):
        if message.HasField("pong"):
            self._heard_session(message.pong.ping_id, message.pong.validity)
        for event in message.events:
            if event.HasField("lost") and self.lease is not None and \
                    event.lost.lease_id == self.lease.lease_id:
                self.lost_ns = self.lost_ns or now_ns()
        for result in message.results:
            self._answer(result)

    def _answer(self, result):
        message, answer = self.asked.get(result.sequence, (None, None))
        if answer is None or answer.done():
            return
        if result.HasField("queued"):
            self.queued_ns = self.queued_ns or now_ns()
        elif not result.HasField("error"):
            answer.set_result(result)
        else:
            self._refuse(result.error, message, answer)

    def _refuse(self, error, message, answer):
        code = next(code for code in grpc.StatusCode if code.value[0] == error.code)
        self.place.refused[f"{code.name} {reason_of(error)}".rstrip()] += 1
        if reason_of(error) in ("NOT_HELD", "SESSION_LOST"):
            answer.set_exception(Gone())
        elif code == grpc.StatusCode.UNAVAILABLE:
            self.steady = False
            asyncio.get_running_loop().call_later(0.2, self._send_soon, [message])
        else:
            self.place.unexpected.append(f"{self.name}: {error}")
            answer.set_exception(Gone())


KINDS = (Detached, Detached, Holding, Holding, InSession)


async def _crowd(plan, stop):
    place = Place(plan)
    tasks = {}
    for number in range(plan["first"], plan["first"] + plan["clients"]):
        client = plan["kinds"][number % len(plan["kinds"])](place, number)
        tasks[asyncio.ensure_future(client.run())] = client
    while not stop.is_set():
        await asyncio.sleep(0.1)
    place.stopping.set()
    # Who holds gives it back first; who waits gives up.
    while any(client.lease is not None and not task.done() for task, client in tasks.items()):
        for task, client in tasks.items():
            if client.lease is None:
                task.cancel()
        await asyncio.sleep(0.05)
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if outcome is not None and not isinstance(outcome, asyncio.CancelledError):
            place.unexpected.append(repr(outcome))
    await place.close()
    return place.grants, place.unexpected, place.refused


def _process(plan, stop, results):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    results.put(asyncio.run(_crowd(plan, stop)))


class Crowd:
    """`clients` clients in `processes` processes. Leaving the context ends them."""

    def __init__(self, addresses, semaphore, limit, folder, clients, processes=2, ttl_ms=4000,
                 kinds=KINDS):
        context = multiprocessing.get_context("spawn")
        self._stop = context.Event()
        self._results = context.Queue()
        self._processes = []
        # After finish(): the code and the reason of each call that failed, and how often.
        self.refused = collections.Counter()
        each = clients // processes
        for i in range(processes):
            plan = {"addresses": addresses, "semaphore": semaphore, "limit": limit,
                    "folder": folder, "ttl_ms": ttl_ms, "first": i * each, "clients": each,
                    "kinds": kinds}
            self._processes.append(
                context.Process(target=_process, args=(plan, self._stop, self._results)))

    def __enter__(self):
        for process in self._processes:
            process.start()
        return self

    def __exit__(self, *unused):
        for process in self._processes:
            process.kill()
            process.join()

    def finish(self, bound_s=30):
        """Lets all give back what they hold; returns the grants, and errors that nobody expects."""
        self._stop.set()
        grants, unexpected = [], []
        for _ in self._processes:
            part = self._results.get(timeout=bound_s)
            grants += part[0]
            unexpected += part[1]
            self.refused += part[2]
        for process in self._processes:
            process.join(bound_s)
        return grants, unexpected


def _careless(plan, results):
    """Takes a permit, reads, is stopped in the middle of its work for as long as anybody likes, and
    writes without a look at the clock."""
    stub = pb_grpc.SemaphoreServiceStub(grpc.insecure_channel(plan["addresses"][0]))
    asked_ns = now_ns()
    response = stub.Acquire(pb.AcquireRequest(
        request_id=numbered(uuid.uuid4().hex, 1), semaphore=plan["semaphore"],
        limit=plan["limit"], wait_forever=True, ttl_ms=plan["ttl_ms"],
        priority=1000, holder="careless"), timeout=WAIT_S)
    granted_ns = now_ns()
    lease = response.lease
    resource = Resource(plan["folder"])
    slots = slots_of(lease.slots)
    seen = resource.read(slots[0], lease.token)
    results.put(Grant(client="careless", slots=tuple(slots), token=lease.token,
                      asked_ns=asked_ns, granted_ns=granted_ns, priority=1000,
                      ended_ns=good_until_ns(asked_ns, response.validity)))
    results.close()
    results.join_thread()
    os.kill(os.getpid(), signal.SIGSTOP)
    with contextlib.suppress(Stale):
        resource.write(slots[0], lease.token, seen)


class CarelessHolder:
    """One process that is stopped while it holds, and writes when it is woken."""

    def __init__(self, address, semaphore, limit, folder, ttl_ms):
        context = multiprocessing.get_context("spawn")
        self._results = context.Queue()
        plan = {"addresses": [address], "semaphore": semaphore, "limit": limit, "folder": folder,
                "ttl_ms": ttl_ms}
        self._process = context.Process(target=_careless, args=(plan, self._results))

    def __enter__(self):
        self._process.start()
        return self

    def __exit__(self, *unused):
        self._process.kill()
        self._process.join()

    def granted(self, bound_s=30):
        """Its grant; it stands still from then on."""
        return self._results.get(timeout=bound_s)

    def wake(self, bound_s=10):
        """Returns when it has tried to write."""
        os.kill(self._process.pid, signal.SIGCONT)
        self._process.join(bound_s)
        assert self._process.exitcode == 0, f"the careless holder: {self._process.exitcode}"
