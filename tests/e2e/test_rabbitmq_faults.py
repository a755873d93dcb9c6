"""RabbitMQ keeps the permits: what becomes of them, and what holders are told, when the broker, its
queues, its connections or the daemons fail."""

import contextlib
import signal
import threading
import time
import unittest
from concurrent import futures

import broker
from broker import HEARTBEAT_S, Holder, TTL_MS, foreign, free_tokens, semctl, token_queue
from daemon import BOUND_S, Session, error_info, grpc, pb, wait_until
import pika

# The broker, once for all classes that leave it as it was.
SHARED = {}


def setUpModule():  # pylint: disable=invalid-name
    SHARED["server"] = broker.start_broker(unittest.addModuleCleanup)


def measured(what, seconds):
    """For the documentation: it is printed, not judged."""
    print(f"\nmeasured: {what}: {seconds:.2f} s", flush=True)


def slot_of(lease):
    """Of one permit."""
    return lease.slots[0].first


class OnBroker(unittest.TestCase):

    def setUp(self):
        self.server = SHARED["server"]
        self.server.start()  # If a test before has left it stopped.
        self.name = self.id().rsplit(".", 1)[1]

    def daemon(self, name, settings=None, options=broker.OPTIONS):
        daemon = broker.daemon_on(self.server, f"{name}-{self.name}", settings, options)
        self.addCleanup(daemon.close)
        try:
            return daemon.start()
        finally:
            self.addCleanup(self.show_log, daemon)

    def show_log(self, daemon):
        result = self._outcome.result
        if any(test is self for test, _ in result.failures + result.errors):
            print(f"---- {daemon.settings['node_id']}:\n{daemon.log()[-3000:]}\n----", flush=True)

    def acquired(self, client, semaphore, **fields):
        """A lease, as soon as the daemon can give one. The same request each time."""
        request = client.acquire_request(semaphore, **fields)

        def granted():
            try:
                return client.stub.Acquire(request, timeout=BOUND_S).lease
            except grpc.RpcError as error:
                self.assertEqual(error.code(), grpc.StatusCode.UNAVAILABLE, error)
                return None
        return wait_until(granted, f"{semaphore} can be acquired", 30)

    def refused(self, code, reason, call, *arguments, **fields):
        with self.assertRaises(grpc.RpcError) as caught:
            call(*arguments, **fields)
        self.assertEqual(caught.exception.code(), code, caught.exception.details())
        self.assertEqual(error_info(caught.exception).reason, reason, caught.exception.details())
        return caught.exception.details()

    def full(self, client, semaphore):
        self.refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "FULL", client.acquire, semaphore)

    def acquire_all(self, client, semaphore, count):
        """Exactly `count` can be acquired; leaves them held, and returns them."""
        leases = [self.acquired(client, semaphore, wait_ms=1000 * int(BOUND_S), ttl_ms=TTL_MS)
                  for _ in range(count)]
        self.full(client, semaphore)
        self.assertEqual(len({slot_of(lease) for lease in leases}), count, leases)
        return leases

    def release_all(self, client, leases):
        for lease in leases:
            self.assertEqual(client.release(lease.lease_id).released, 1)

    def ended_by_engine(self, client, lease_id):
        """The daemon does not stand by the lease; whether it says why, too."""
        try:
            verdict = client.verify(lease_id)
        except grpc.RpcError as error:
            self.assertEqual(error.code(), grpc.StatusCode.UNAVAILABLE, error)
            return False
        self.assertFalse(verdict.held, "verified, though the broker has taken it back")
        self.assertEqual(verdict.ended, pb.END_CAUSE_ENGINE_LOST)
        return True

    def wait_for_free(self, semaphore, count, bound_s=BOUND_S):
        wait_until(lambda: free_tokens(self.server, semaphore) == count,
                   f"{count} free tokens of {semaphore}", bound_s)


class Held:
    """All permits of a semaphore, each held in another way, and one who waits."""

    LIMIT = 3

    def __init__(self, test, daemon, semaphore, waits=True):
        self.test = test
        self.client = daemon.client()
        self.session = Session(daemon.client(), ttl_ms=TTL_MS)
        self.session.opened()
        self.session.command(1, acquire=pb.SessionAcquire(semaphore=semaphore, limit=self.LIMIT))
        leases = [self.session.result(1).granted]
        self.hold = Holder(daemon.client(), semaphore, limit=self.LIMIT)
        leases.append(self.hold.granted())
        leases.append(self.client.acquire(semaphore, limit=self.LIMIT, ttl_ms=TTL_MS))
        self.leases = leases
        self.highest = max(lease.token for lease in leases)
        self.waiter = None
        if waits:
            self.waiter = Holder(daemon.client(), semaphore, wait_forever=True).waits()

    def served(self):
        """The lease of the waiter. It may have been told to ask again, since nothing could be
        vouched for."""
        try:
            return self.waiter.granted()
        except AssertionError:
            if not self.waiter.ended_at:
                raise
            self.test.assertEqual(self.waiter.error.code(), grpc.StatusCode.UNAVAILABLE)
            return self.waiter.again().granted()

    def told(self):
        """All who have a stream are told; the third finds out when it asks."""
        self.test.assertEqual(self.hold.told(), pb.END_CAUSE_ENGINE_LOST)
        lost = self.session.reader.until(
            lambda m: any(e.HasField("lost") for e in m.events), "the session is told")
        self.test.assertEqual(
            [(e.lost.lease_id, e.lost.cause) for e in lost.events if e.HasField("lost")],
            [(self.leases[0].lease_id, pb.END_CAUSE_ENGINE_LOST)])
        for lease in self.leases:
            self.test.ended_by_engine(self.client, lease.lease_id)


class TheBrokerGoesAway(OnBroker):

    def check(self, begin, end):
        daemon = self.daemon("a")
        client = daemon.client()
        process = daemon.process.pid
        client.acquire("other/" + self.name, limit=7, ttl_ms=1000)
        held = Held(self, daemon, self.name)
        self.settle()
        begun = begin()
        held.told()
        measured(f"{self.name}: from the end of the connection to the holder's being told",
                 held.hold.lost_at - begun)
        end(client)
        # By itself, and with what was there.
        waiter = held.served()
        leases = self.acquire_all(client, self.name, Held.LIMIT - 1)
        by_slot = {slot_of(lease): lease.token for lease in held.leases}
        for lease in [waiter, *leases]:
            self.assertGreater(lease.token, by_slot[slot_of(lease)])
        self.assertEqual(client.describe(self.name).limit, Held.LIMIT)
        self.assertEqual(client.describe("other/" + self.name).limit, 7)
        self.release_all(client, [waiter, *leases])
        self.wait_for_free(self.name, Held.LIMIT)
        self.wait_for_free("other/" + self.name, 7)
        self.assertEqual((daemon.process.poll(), daemon.process.pid), (None, process))

    def settle(self):
        """A node alone that is killed within half a second after a quorum queue was declared starts
        without the log of that queue: it is empty, has no leader, and answers nobody. RabbitMQ
        writes down late which logs there are; nobody who uses it can do anything about that."""
        until = time.monotonic() + 2
        wait_until(lambda: time.monotonic() > until, "the names of the queues are on disk")

    def check_stopped(self, kill):
        self.addCleanup(self.server.start)

        def stop():
            begun = time.monotonic()
            self.server.stop(kill)
            return begun

        def start(client):
            with self.assertRaises(grpc.RpcError) as caught:
                client.acquire("new/" + self.name, limit=1)
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)
            self.server.start()
            begun = time.monotonic()
            self.release_all(client, [self.acquired(client, "other/" + self.name)])
            measured("from the start of the broker to the first lease", time.monotonic() - begun)
        self.check(stop, start)

    def test_stopped(self):
        self.check_stopped(kill=False)

    def test_killed(self):
        self.check_stopped(kill=True)

    def test_connections_are_closed(self):
        def close():
            """Returns when a connection that is none of ours was closed."""
            standing, closed = threading.Event(), threading.Event()
            times = []

            def stand():
                with foreign(self.server) as channel:
                    standing.set()
                    try:
                        channel.connection.process_data_events(time_limit=2 * BOUND_S)
                    except pika.exceptions.AMQPError:
                        times.append(time.monotonic())
                closed.set()
            threading.Thread(target=stand, daemon=True).start()
            self.assertTrue(standing.wait(BOUND_S))
            self.server.ctl("close_all_connections", "test")
            self.assertTrue(closed.wait(BOUND_S))
            return times[0]
        self.check(close, lambda client: None)


class Queues(OnBroker):

    def delete_queue(self):
        with foreign(self.server) as channel:
            channel.queue_delete(token_queue(self.name))
        return time.monotonic()

    def check_deleted(self, waits):
        daemon = self.daemon("a")
        client = daemon.client()
        held = Held(self, daemon, self.name, waits)
        begun = self.delete_queue()
        held.told()
        measured(f"{self.name}: from the end of the queue to the holder's being told",
                 held.hold.lost_at - begun)
        with self.assertRaises(grpc.RpcError, msg="granted, though there are no permits"):
            client.acquire(self.name)
        if waits:
            self.assertIsNone(held.waiter.lease)
            held.waiter.cancel()
            client.wait_for_queue(self.name, 0)
        pruned = semctl(daemon, "prune", self.name)
        self.assertEqual(pruned.returncode, 0, pruned)
        leases = self.acquire_all(client, self.name, Held.LIMIT)
        self.assertGreater(min(lease.token for lease in leases), held.highest)

    def test_the_queue_is_deleted(self):
        self.check_deleted(waits=False)

    def test_the_queue_is_deleted_while_somebody_waits(self):
        self.check_deleted(waits=True)

    def check_lost_tokens(self, lose):
        """Two of four permits are lost, one each is held at two daemons."""
        first, second = self.daemon("a"), self.daemon("b")
        client, other = first.client(), second.client()
        kept = client.acquire(self.name, limit=4, ttl_ms=TTL_MS)
        elsewhere = other.acquire(self.name, ttl_ms=TTL_MS)
        lose()
        self.full(client, self.name)
        self.full(other, self.name)
        other.release(elsewhere.lease_id)
        taken = self.acquire_all(other, self.name, 1)
        pruned = semctl(first, "prune", self.name, "-o", "json")
        self.assertEqual(pruned.returncode, 119, pruned)
        self.refused(grpc.StatusCode.FAILED_PRECONDITION, "IN_USE", self.prune, client)
        self.full(client, self.name)
        self.release_all(other, taken)
        # One who only waits may have something in its hands, for all that anybody can tell.
        rest = self.acquire_all(client, self.name, 1)
        waiter = Holder(other, self.name, wait_forever=True).waits()
        self.refused(grpc.StatusCode.FAILED_PRECONDITION, "IN_USE", self.prune, client)
        waiter.cancel()
        other.wait_for_queue(self.name, 0)
        self.mend(client)
        self.assertTrue(client.verify(kept.lease_id).held, "lost by pruning")
        self.assertTrue(client.verify(rest[0].lease_id).held, "lost by pruning")
        leases = self.acquire_all(other, self.name, 2)
        self.release_all(other, leases)
        self.release_all(client, [kept, *rest])
        self.wait_for_free(self.name, 4)
        self.acquire_all(other, self.name, 4)

    def prune(self, client):
        return client.administer(self.name, prune=pb.PruneSemaphore())

    def mend(self, client):
        """As soon as the broker has noticed that the others have nothing."""
        def mended():
            try:
                self.prune(client)
                return True
            except grpc.RpcError as error:
                self.assertEqual(error_info(error).reason, "IN_USE", error)
                return False
        wait_until(mended, "it is mended when nobody else has anything")

    def test_the_queue_is_purged(self):
        def purge():
            with foreign(self.server) as channel:
                channel.queue_purge(token_queue(self.name))
        self.check_lost_tokens(purge)

    @contextlib.contextmanager
    def suspended(self, queue):
        """A queue whose leader does not answer, as while one is being elected."""
        process = f'whereis(list_to_atom("%2F_{queue}"))'
        self.server.ctl("eval", f"sys:suspend({process}).")
        try:
            yield
        finally:
            self.server.ctl("eval", f"sys:resume({process}).")

    def unavailable(self, call, *arguments, **fields):
        """How long it took to be said."""
        begun = time.monotonic()
        with self.assertRaises(grpc.RpcError) as raised:
            call(*arguments, **fields)
        self.assertEqual(raised.exception.code(), grpc.StatusCode.UNAVAILABLE, raised.exception)
        return time.monotonic() - begun

    def test_a_queue_that_does_not_answer(self):
        """It is not taken for one that has no permit, and costs nobody a lease: neither of its own
        semaphore nor of another one."""
        daemon = self.daemon("a", options="?layout=tokens")
        client = daemon.client()
        stuck, well = self.name + "/stuck", self.name + "/well"
        holders = [Holder(daemon.client(), stuck, limit=3), Holder(daemon.client(), well, limit=3)]
        leases = [holder.granted() for holder in holders]
        given_back = client.acquire(stuck, ttl_ms=TTL_MS)
        with self.suspended(token_queue(stuck)):
            measured("a queue does not answer: the first is told after",
                     self.unavailable(client.acquire, stuck))
            measured("… and the next after", self.unavailable(client.acquire, stuck))
            waiter = Holder(daemon.client(), stuck, wait_forever=True).waits()
            self.assertEqual(client.release(given_back.lease_id).released, 1)
            self.release_all(client, [client.acquire(well, ttl_ms=TTL_MS)])
            for lease in leases:
                self.assertTrue(client.verify(lease.lease_id).held)
        waiter.granted()
        self.release_all(client, self.acquire_all(client, stuck, 1))
        for holder, lease in zip(holders, leases):
            self.assertTrue(client.verify(lease.lease_id).held)
            self.assertIsNone(holder.lost)
        self.release_all(client, [*leases, waiter.lease])
        self.wait_for_free(stuck, 3)
        self.wait_for_free(well, 3)

    def test_settings_that_do_not_answer(self):
        daemon = self.daemon("a", options="?layout=tokens")
        client = daemon.client()
        stuck, well = self.name + "/stuck", self.name + "/well"
        holders = [Holder(daemon.client(), stuck, limit=3), Holder(daemon.client(), well, limit=3)]
        leases = [holder.granted() for holder in holders]
        with self.suspended(token_queue(stuck) + ".settings"):
            self.unavailable(self.raise_limit, client, stuck)
            for name in (stuck, well):
                self.release_all(client, [self.acquired(client, name, ttl_ms=TTL_MS)])
            for lease in leases:
                self.assertTrue(client.verify(lease.lease_id).held)
        wait_until(lambda: self.resized(client, stuck), "the limit is raised")
        self.acquire_all(client, stuck, 4)
        for holder in holders:
            self.assertIsNone(holder.lost)

    @staticmethod
    def raise_limit(client, name):
        client.administer(name, resize=pb.ResizeSemaphore(limit=5))

    def resized(self, client, name):
        try:
            self.raise_limit(client, name)
            return True
        except grpc.RpcError as error:
            self.assertEqual(error.code(), grpc.StatusCode.UNAVAILABLE, error)
            return False

    def test_a_foreign_client_acknowledges_tokens(self):
        def acknowledge():
            with foreign(self.server) as channel:
                for _ in range(2):
                    method, _, _ = channel.basic_get(token_queue(self.name))
                    channel.basic_ack(method.delivery_tag)
        self.check_lost_tokens(acknowledge)


class Daemons(OnBroker):

    def test_a_daemon_is_killed(self):
        first, second = self.daemon("a"), self.daemon("b")
        held = [first.client().acquire(self.name, limit=2, ttl_ms=TTL_MS) for _ in range(2)]
        waiter = Holder(second.client(), self.name, wait_forever=True).waits()
        begun = time.monotonic()
        first.kill9()
        lease = waiter.granted()
        measured("from the kill of a daemon to the lease of another's waiter",
                 waiter.granted_at - begun)
        self.wait_for_free(self.name, 1)
        measured("and until all its permits are free", time.monotonic() - begun)
        tokens = {slot_of(each): each.token for each in held}
        self.assertGreater(lease.token, tokens[slot_of(lease)])
        rest = self.acquire_all(second.client(), self.name, 1)
        self.assertGreater(rest[0].token, tokens[slot_of(rest[0])])
        # In its next life it goes on with the others, and takes nothing away.
        first.start()
        self.full(first.client(), self.name)
        self.assertTrue(second.client().verify(lease.lease_id).held)

    def check_paused(self, resume_after_s):
        first, second = self.daemon("a"), self.daemon("b")
        holder = Holder(first.client(), self.name, limit=1)
        old = holder.granted()
        waiter = Holder(second.client(), self.name, wait_forever=True).waits()
        begun = time.monotonic()
        first.signal(signal.SIGSTOP)
        lease = waiter.granted()
        self.assertGreater(lease.token, old.token)
        taken_back = waiter.granted_at - begun
        good_until = holder.until - begun
        wait_until(lambda: time.monotonic() >= begun + resume_after_s, "the pause is over")
        resumed = time.monotonic()
        first.signal(signal.SIGCONT)
        wait_until(lambda: holder.ended_at, "the holder is told")
        measured("from the pause to the permit at another daemon", taken_back)
        measured("from the pause to the end of what the holder was vouched for", good_until)
        measured("for so long both may believe that they hold", max(0.0, good_until - taken_back))
        measured("from the end of the pause to the holder's being told", holder.ended_at - resumed)
        # What it says at first may be that it cannot vouch; then what has become of the lease.
        wait_until(lambda: self.ended_by_engine(first.client(), old.lease_id), "it is known")
        vouched = [until - came for came, until in holder.heard if came > resumed and until > came]
        self.assertEqual(vouched, [], "vouched for, though it was lost")
        if holder.lost:
            self.assertEqual(holder.lost.cause, pb.END_CAUSE_ENGINE_LOST)
        else:
            self.assertEqual(error_info(holder.error).reason, "NOT_VOUCHED", holder.error)
        self.assertTrue(second.client().verify(lease.lease_id).held)
        # ADR 0008: no longer than one heartbeat, and the broker waits for two.
        self.assertLess(good_until, taken_back,
                        "its holder was told that it is good while the broker gives it to others")

    def test_a_daemon_is_paused(self):
        self.check_paused(5 * HEARTBEAT_S)

    def test_a_daemon_is_paused_until_the_broker_has_just_taken_back(self):
        self.check_paused(0)

    def test_a_resize_is_seen_by_others(self):
        first, second = self.daemon("a"), self.daemon("b")
        held = self.acquire_first(second.client(), 2)
        waiter = Holder(second.client(), self.name, wait_forever=True).waits()
        begun = time.monotonic()
        self.resize(first.client(), 3)
        lease = waiter.granted()
        measured("from a resize to the grant at another daemon", waiter.granted_at - begun)
        self.assertEqual(second.client().describe(self.name).limit, 3)
        self.full(second.client(), self.name)
        # Lowered with a waiter at each daemon: both wait until there is room again.
        waiters = [Holder(each.client(), self.name, wait_forever=True).waits()
                   for each in (first, second)]
        begun = time.monotonic()
        self.resize(first.client(), 1)
        wait_until(lambda: second.client().describe(self.name).limit == 1, "the other sees it")
        measured("from a lowering to its being seen at another daemon", time.monotonic() - begun)
        self.release_all(second.client(), held)
        wait_until(lambda: first.client().describe(self.name).held == 1, "two are taken out")
        self.assertEqual([each.lease for each in waiters], [None, None])
        second.client().release(lease.lease_id)
        wait_until(lambda: any(each.lease for each in waiters), "one is served")
        self.assertFalse(all(each.lease for each in waiters))
        served, other = sorted(waiters, key=lambda each: each.lease is None)
        first_client = (first if served is waiters[0] else second).client()
        first_client.release(served.lease.lease_id)
        self.assertGreater(other.granted().token, served.lease.token)

    def acquire_first(self, client, limit):
        leases = [client.acquire(self.name, limit=limit, ttl_ms=TTL_MS) for _ in range(limit)]
        self.full(client, self.name)
        return leases

    def resize(self, client, limit):
        client.administer(self.name, resize=pb.ResizeSemaphore(limit=limit))

    def test_both_use_a_semaphore_for_the_first_time(self):
        daemons = self.daemon("a"), self.daemon("b")
        limit, names = 3, [f"{self.name}/{number}" for number in range(8)]
        with futures.ThreadPoolExecutor(4) as pool:
            for name in names:
                at_once = threading.Barrier(4)

                def use(client, name=name, at_once=at_once):
                    at_once.wait(BOUND_S)
                    return client.acquire(name, limit=limit, wait_ms=20000, ttl_ms=TTL_MS)
                # Two at each: four ask, and three are granted before one is released.
                clients = [daemon.client() for daemon in daemons for _ in range(2)]
                asked = {pool.submit(use, client): client for client in clients}
                done = futures.as_completed(asked, BOUND_S)
                first = [next(done) for _ in range(limit)]
                leases = [each.result() for each in first]
                self.assertEqual(len({slot_of(lease) for lease in leases}), limit)
                asked[first[0]].release(leases[0].lease_id)
                self.assertEqual(next(done).result().slots, leases[0].slots)
        for name in names:
            self.wait_for_free(name, 0)
            self.assertEqual(daemons[0].client().describe(name).limit, limit)

    def test_a_thousand_waiters_are_served_in_order(self):
        daemon = self.daemon("a")
        client, count, limit = daemon.client(), 1000, 3
        held = self.acquire_first(client, limit)
        session = Session(daemon.client(), ttl_ms=TTL_MS)
        session.opened()
        begun = time.monotonic()
        session.send(commands=[
            pb.SessionCommand(sequence=number + 1, acquire=pb.SessionAcquire(
                semaphore=self.name, wait_forever=True)) for number in range(count)])
        client.wait_for_queue(self.name, count)
        measured(f"until {count} wait", time.monotonic() - begun)
        begun = time.monotonic()
        self.release_all(client, held)
        order, mine, most = [], 0, 0
        while len(order) < count:
            message = session.reader.until(lambda m: m.results, f"{len(order)} served, and more")
            commands = []
            for result in message.results:
                self.assertFalse(result.HasField("error"), result)
                mine -= result.HasField("released")
                if result.HasField("granted"):
                    mine += 1
                    order.append(result.sequence)
                    commands.append(pb.SessionCommand(
                        sequence=count + len(order),
                        release=pb.SessionRelease(lease_id=result.granted.lease_id)))
            most = max(most, mine)
            if commands:
                session.send(commands=commands)
        measured(f"until all {count} were served", time.monotonic() - begun)
        self.assertEqual(order, list(range(1, count + 1)))
        self.assertLessEqual(most, limit)
        self.wait_for_free(self.name, limit)


class MemoryAlarm(OnBroker):

    def test_the_broker_takes_no_messages(self):
        # An act that is refused may take some seconds: longer than is vouched for with heartbeats of
        # a second.
        first, second = (self.daemon(name, options="?heartbeat_s=5") for name in "ab")
        client, other = first.client(), second.client()
        client.acquire("unknown-to-b/" + self.name, limit=2, ttl_ms=TTL_MS)
        holder = Holder(client, self.name, limit=3)
        holder.granted()
        waiter = Holder(other, self.name + "/full", limit=1, wait_forever=True)
        waiter.granted()
        waiting = Holder(client, self.name + "/full", limit=1, wait_forever=True).waits()
        try:
            self.server.ctl("set_vm_memory_high_watermark", "0.00001")
            for act in ("create", "resize", "create", "resize"):
                begun = time.monotonic()
                message = self.refused(grpc.StatusCode.UNAVAILABLE, "ENGINE_UNAVAILABLE",
                                       getattr(self, act), client)
                measured(f"until {act} is refused: {message}", time.monotonic() - begun)
                with self.subTest(act):
                    # Or the connection that was given up for it still has a mutex.
                    self.assertRegex(message, "takes no messages|administers")
            # What writes nothing goes on: at both, and where it has to be read first.
            for asked in (client, other):
                lease = self.acquired(asked, self.name, ttl_ms=TTL_MS)
                self.assertTrue(asked.verify(lease.lease_id).held)
                self.release_all(asked, [lease])
            self.release_all(other, [other.acquire("unknown-to-b/" + self.name)])
            other.release(waiter.lease.lease_id)
            waiting.granted()
            # For longer than the broker waits for a sign of life.
            begun = time.monotonic()
            wait_until(lambda: time.monotonic() > begun + 4 * HEARTBEAT_S, "some heartbeats")
            self.assertTrue(client.verify(holder.lease.lease_id).held)
            self.assertIsNone(holder.lost)
        finally:
            self.server.ctl("set_vm_memory_high_watermark", "0.6")
        begun = time.monotonic()
        for act in ("create", "resize"):
            wait_until(lambda act=act: self.done(act, client), f"{act} works again")
        measured("until all works again", time.monotonic() - begun)
        self.assertTrue(client.verify(holder.lease.lease_id).held)
        self.acquire_all(other, self.name, 4)

    def create(self, client):
        client.administer(self.name + "/new", create=pb.CreateSemaphore(limit=1))

    def resize(self, client):
        client.administer(self.name, resize=pb.ResizeSemaphore(limit=5))

    def done(self, act, client):
        try:
            getattr(self, act)(client)
            return True
        except grpc.RpcError as error:
            self.assertEqual(error.code(), grpc.StatusCode.UNAVAILABLE, error)
            return False


class ConsumerTimeout(unittest.TestCase):
    """The broker closes a channel through which something was held for too long."""

    TIMEOUT_S = 12

    def test_a_lease_ends_before_the_broker_takes_it_back(self):
        server = broker.start_broker(
            self.addCleanup, f"consumer_timeout = {self.TIMEOUT_S * 1000}",
            "[{rabbit, [{channel_tick_interval, 1000}]}].")
        # The connection is not what may be lost here, however busy the machine is.
        daemon = broker.daemon_on(
            server, "a", options="?layout=tokens&heartbeat_s=2&timeout_ms=20000"
                                 f"&consumer_timeout_ms={self.TIMEOUT_S * 1000}")
        self.addCleanup(daemon.close)
        daemon.start()
        client = daemon.client()
        for name in ("long", "foreign"):
            client.administer(name, create=pb.CreateSemaphore(
                limit=2, settings=pb.SemaphoreSettings(recall_grace_ms=1000)))
        with foreign(server) as channel:
            # That the broker does it here: to one who holds without end.
            channel.basic_get(token_queue("foreign"))
            begun = time.monotonic()
            old = Holder(client, "long")
            old.granted()
            wait_until(lambda: time.monotonic() > begun + self.TIMEOUT_S / 2, "half of the time")
            young = Holder(daemon.client(), "long")
            young.granted()
            self.assertEqual(old.told(), pb.END_CAUSE_RECALLED)
            measured("a lease without end was recalled and ended after", old.lost_at - begun)
            self.assertLess(old.lost_at, begun + self.TIMEOUT_S, "it ended too late")
            self.assertIsNone(young.lost, "lost with the older one")
            wait_until(lambda: channel.connection.process_data_events() or channel.is_closed,
                       "the broker closes the channel of the foreign client")
            measured("one of a foreign client was taken back after", time.monotonic() - begun)
        self.assertIsNone(young.lost, "lost with the older one")
        self.assertTrue(client.verify(young.lease.lease_id).held)
        again = client.acquire("long", wait_ms=1000)
        self.assertGreater(again.token, old.lease.token)
        self.assertEqual(again.slots, old.lease.slots)

    def test_the_token_after_a_lease_that_the_broker_took_back_is_higher(self):
        """A daemon that does not know of the time-out. From 4.3 on x-delivery-count leaves this way back out."""
        server = broker.start_broker(
            self.addCleanup, "consumer_timeout = 4000", "[{rabbit, [{channel_tick_interval, 1000}]}].")
        daemon = broker.daemon_on(
            server, "a", options="?layout=tokens&heartbeat_s=2&timeout_ms=20000&consumer_timeout_ms=0")
        self.addCleanup(daemon.close)
        daemon.start()
        client = daemon.client()
        client.administer(self.id(), create=pb.CreateSemaphore(limit=1))
        before = Holder(client, self.id())
        before.granted()
        self.assertEqual(before.told(), pb.END_CAUSE_ENGINE_LOST)
        # Nothing waited: no way back that is counted lies between the two.
        self.assertGreater(client.acquire(self.id(), wait_ms=10000).token, before.lease.token)


if __name__ == "__main__":
    unittest.main()
