"""What daemons do on a shared engine, in some seconds: tickets, sessions, and the take-over of what a killed daemon had."""

from daemon import Session, pb, wait_until
from work_stream import WorkStream, enqueue

TTL_MS = 1500


def day(case, a, b):
    """Of a TestCase, with two daemons on one store; `b` is killed."""
    client = a.client()
    enqueue(client, "work", b"payload")
    enqueue(client, "work", b"later", delay_ms=200)
    worker = WorkStream(b.client(), semaphores=["work"])
    worker.finish(worker.assignment(), failed=pb.TicketFailed(reason="once more", retry_after_ms=50))
    for _ in range(2):
        worker.finish(worker.assignment())
    worker.send(close=True)

    session = Session(b.client(), client_id="moves", ttl_ms=60_000)
    session_id = session.opened().session_id
    session.command(1, acquire=pb.SessionAcquire(semaphore="moved", permits=1, limit=1))
    case.assertTrue(session.result(1).HasField("granted"))
    left = b.client().acquire("left", limit=1, ttl_ms=TTL_MS)
    waiting = client.acquire_later("left")
    client.wait_for_queue("left", 1)
    b.kill9()
    wait_until(lambda: "dead node" in a.log(), "b is seen to be dead")
    again = Session(a.client(), client_id="moves", resume_session_id=session_id)
    case.assertEqual(len(again.opened().leases), 1)
    case.assertGreater(waiting.result().lease.token, left.token)
    again.send(close=True)
