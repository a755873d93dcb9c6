"""A client as a process of its own, to be killed and stopped. Prints a JSON object for each event.

Usage: holder.py SERVER SEMAPHORE MODE TTL_MS [release_on_disconnect]
MODE: hold (a Hold stream), renew (Acquire, then Renew every third of the TTL), session.
"""

import json
import sys
import threading
import time

import daemon
from daemon import grpc, pb


def tell(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)


def tell_granted(lease):
    tell("granted", lease_id=lease.lease_id, token=lease.token, slots=daemon.slots_of(lease.slots))


def hold(client, request, release_on_disconnect):
    tell("asking")
    for message in client.stub.Hold(
            pb.HoldRequest(acquire=request, release_on_disconnect=release_on_disconnect)):
        kind = message.WhichOneof("event")
        if kind == "granted":
            tell_granted(message.granted.lease)
        elif kind == "queued":
            tell("queued", position=message.queued.position)
        elif kind == "lost":
            tell("lost", cause=message.lost.cause)
            return
    tell("ended")


def renew(client, request):
    tell("asking")
    lease = client.stub.Acquire(request).lease
    tell_granted(lease)
    while True:
        time.sleep(request.ttl_ms / 3000)  # the pace of a holder, not a wait for something
        client.stub.Renew(pb.RenewRequest(lease_id=lease.lease_id), timeout=daemon.BOUND_S)


def session(client, request, release_on_disconnect):
    stream = daemon.Session(client, ttl_ms=request.ttl_ms,
                            release_on_disconnect=release_on_disconnect)
    stream.opened()
    tell("asking")
    stream.command(1, acquire=pb.SessionAcquire(semaphore=request.semaphore, limit=request.limit,
                                                wait_forever=request.wait_forever))
    stop = threading.Event()

    def ping():
        number = 0
        while not stop.wait(request.ttl_ms / 3000):
            number += 1
            stream.send(ping=pb.SessionPing(ping_id=number))
    threading.Thread(target=ping, daemon=True).start()
    tell_granted(stream.result(1).granted)
    while True:
        message = stream.reader.next(3600)
        if isinstance(message, tuple):
            stop.set()
            if message[1] is not None:
                raise message[1]
            return
        for event in message.events:
            if event.HasField("lost"):
                tell("lost", cause=event.lost.cause)


def main():
    server, semaphore, mode, ttl_ms = sys.argv[1:5]
    release_on_disconnect = "release_on_disconnect" in sys.argv[5:]
    client = daemon.Client(grpc.insecure_channel(server))
    request = client.acquire_request(semaphore, limit=1, wait_forever=True, ttl_ms=int(ttl_ms))
    try:
        if mode == "hold":
            hold(client, request, release_on_disconnect)
        elif mode == "renew":
            renew(client, request)
        else:
            session(client, request, release_on_disconnect)
    except grpc.RpcError as error:
        tell("error", code=error.code().name, details=error.details())


if __name__ == "__main__":
    main()
