#!/usr/bin/env python3
"""Attacks of all kinds from many connections, beside an honest client: what it costs that client, and in memory.

The same attackers first write to a sink that only reads, so that what their own processor time costs is not taken for
the daemon's. Prints a line for each phase, and fails if the honest client's p99 more than doubles, an honest call
fails, or memory grows.

  tests/hostile/mixed.py [--seconds 60] [--connections 50] [--seed N] [--tls]
"""

import argparse
import multiprocessing
import os
import random
import socket
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import wire  # noqa: E402
from test_wire import MIB, Authority, Guarded, Honest, grpc  # noqa: E402

PROCESSES = 2
PAUSE_S = 0.02  # Of one attacker, after each attack: the machine has few processors.


def half_a_message(attacker, _):
    attacker.send(wire.frame(wire.HEADERS, wire.call_headers(b"Acquire"), wire.END_HEADERS, 1) +
                  wire.frame(wire.DATA, b"\0\0\x3f\xff\xff" + b"x" * 10_000, 0, 1))


def unknown_tokens(attacker, chance):
    attacker.send(b"".join(wire.call(stream, b"Administer", b"", f"smt_{chance.random()}")
                           for stream in range(1, 400, 2)))


def unknown_methods(attacker, _):
    attacker.send(b"".join(wire.call(stream, b"Nothing", b"") for stream in range(1, 400, 2)))


def junk(attacker, chance):
    attacker.send(chance.randbytes(1 << 14))


def large_metadata(attacker, _):
    attacker.send(wire.call(1, b"Acquire", b"", None, [(b"x-%d" % i, b"v" * 4_000) for i in range(15)]))


def flood_of(part, most=200):
    def flood(attacker, _):
        attacker.flood(part for _ in range(most))
    return flood


def headers_that_never_end(how):
    def attack(attacker, _):
        attacker.flood(wire.endless_header(4 * MIB, how))
    return attack


ATTACKS = [
    lambda attacker, _: attacker.flood(wire.resets(20_000)),
    headers_that_never_end("frame"), headers_that_never_end("continuations"), headers_that_never_end("padding"),
    flood_of(wire.frame(wire.PING, b"12345678") * 100), flood_of(wire.settings() * 100),
    flood_of(wire.frame(wire.WINDOW_UPDATE, b"\0\0\0\1") * 100), flood_of(wire.frame(wire.DATA, b"", 0, 1) * 100),
    half_a_message, unknown_tokens, unknown_methods, junk, large_metadata,
]


def attack(address, authority_file, seed, ending, count):
    chance = random.Random(seed)
    while not ending.is_set():
        try:
            with wire.Attacker(address, authority_file if chance.random() < 0.5 else None) as attacker:
                attacker.socket.settimeout(2)
                chance.choice(ATTACKS)(attacker, chance)
        except OSError:
            pass
        with count.get_lock():
            count.value += 1
        time.sleep(PAUSE_S)


def attackers(address, authority_file, seed, connections, ending, count):
    threads = [threading.Thread(target=attack, args=(address, authority_file, seed * 1000 + i, ending, count))
               for i in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def sink(listener):
    """Reads all that comes, and says nothing."""
    def read(connection):
        with connection:
            try:
                while connection.recv(1 << 16):
                    pass
            except OSError:
                pass
    while True:
        threading.Thread(target=read, args=(listener.accept()[0],), daemon=True).start()


def quantile(times, part):
    return sorted(times)[int(len(times) * part)] * 1000


def phase(name, daemon, channel, seconds, address, authority_file, options):
    """The honest client beside these attackers (address None: beside none). Its times."""
    ending = multiprocessing.Event()
    count = multiprocessing.Value("q", 0)
    processes = [multiprocessing.Process(target=attackers, args=(
        address, authority_file, options.seed + i, options.connections // PROCESSES, ending, count))
        for i in range(PROCESSES if address else 0)]
    for process in processes:
        process.start()
    try:
        with Honest(daemon, channel) as honest:
            time.sleep(seconds)
    finally:
        ending.set()
        for process in processes:
            process.join(60)
    if honest.error is not None:
        sys.exit(f"{name}: an honest call failed: {honest.error}")
    print(f"{name:9} {len(honest.times):7} cycles, p50 {quantile(honest.times, 0.5):7.2f} ms, "
          f"p99 {quantile(honest.times, 0.99):7.2f} ms, p99.9 {quantile(honest.times, 0.999):7.2f} ms; "
          f"{count.value} attacks; memory {daemon.memory('VmRSS') / MIB:.0f} MiB", flush=True)
    return honest.times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--tls", action="store_true")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="semaphored-mixed-") as folder:
        authority_file, channel, settings = None, None, {}
        if options.tls:
            authority = Authority(folder, "ca")
            pair = authority.sign("server")
            authority_file = authority.cert_file
            settings = {"tls_cert_file": pair.cert_file, "tls_key_file": pair.key_file}
        daemon = Guarded(**settings)
        if options.tls:
            credentials = grpc.ssl_channel_credentials(authority.cert())
            channel = grpc.secure_channel(daemon.address, credentials)
            daemon.is_serving = lambda: grpc.channel_ready_future(channel).result(30) is None
        try:
            daemon.start()
            listener = socket.create_server(("127.0.0.1", 0), backlog=128)
            threading.Thread(target=sink, args=(listener,), daemon=True).start()
            beside = f"127.0.0.1:{listener.getsockname()[1]}"
            short = max(options.seconds / 4, 5)
            phase("quiet", daemon, channel, short, None, None, options)
            sunk = phase("sink", daemon, channel, short, beside, None, options)
            phase("attack 1", daemon, channel, options.seconds / 2, daemon.address, authority_file, options)
            memory = daemon.memory("VmRSS")
            attacked = phase("attack 2", daemon, channel, options.seconds / 2, daemon.address, authority_file, options)
            grown = daemon.memory("VmRSS") - memory
        finally:
            daemon.close()
    wrong = []
    if quantile(attacked, 0.99) > 2 * quantile(sunk, 0.99):
        wrong.append("the honest client's p99 has more than doubled")
    if grown > 64 * MIB:
        wrong.append(f"memory has grown by {grown / MIB:.0f} MiB in the second half")
    sys.exit("\n".join(wrong) or None)


if __name__ == "__main__":
    main()
