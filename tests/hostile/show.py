#!/usr/bin/python3
"""Shows what the attacks on the wire do to the daemon in a folder of binaries, of any build: its memory, and how long
another client waits for an answer meanwhile. It judges nothing.

Usage: show.py BIN_DIR [SETTING=VALUE ...]

Examples:
  show.py build/release/bin
  show.py build/release/bin frame_guard=off
"""

import os
import re
import subprocess
import sys
import tempfile
import threading
import time

import wire

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "engines"))

import grpc  # noqa: E402
from ports import free_port  # noqa: E402  the folder has to be on the path first

MIB = 1 << 20
BOUND_S = 60.0
# How long the other client is watched after an attack.
AFTER_S = 3.0


class Daemon:
    """With an access file, on a store of its own. A context manager."""

    def __init__(self, bin_dir, settings):
        self._folder = tempfile.TemporaryDirectory(prefix="semaphored-show-")
        program = os.path.join(bin_dir, "semaphored")
        digest = subprocess.run([program, "token"], check=True, capture_output=True, text=True).stdout.split()[1]
        access = os.path.join(self._folder.name, "access.toml")
        with open(access, "w", encoding="ascii") as file:
            file.write(f'[identities.honest]\ntokens = ["{digest}"]\n'
                       'rules = [{ prefixes = [""], verbs = ["acquire"] }]\n')
        self.address = f"127.0.0.1:{free_port()}"
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in settings]
        with open(os.path.join(self._folder.name, "log"), "wb") as log:
            self.process = subprocess.Popen(
                [program, f"--listen={self.address}", f"--store=sqlite://{self._folder.name}/state.db",
                 f"--access-file={access}", *flags], stdout=log, stderr=log)

    def memory_mib(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            return int(re.search(r"VmHWM:\s+(\d+) kB", file.read())[1]) // 1024

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.process.kill()
        self.process.wait()
        self._folder.cleanup()


class OtherClient(threading.Thread):
    """Asks over and over, without a token, and notes how long each answer takes."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self._call = grpc.insecure_channel(address).unary_unary("/grpc.health.v1.Health/Check")
        self.times = []
        self.first, self.ending = threading.Event(), threading.Event()

    def run(self):
        while not self.ending.is_set():
            begun = time.monotonic()
            try:
                self._call(b"", timeout=BOUND_S, wait_for_ready=not self.times)
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.UNAUTHENTICATED:
                    print(f"  another client: {error.code().name}")
            self.times.append(time.monotonic() - begun)
            self.first.set()
            time.sleep(0.01)


def resets(address):
    attacker = None
    for part in wire.resets(300_000):
        # It comes again when it is thrown out.
        if attacker is None or not attacker.send(part):
            attacker = wire.Attacker(address)
            attacker.send(part)


def endless_header(how):
    def attack(address):
        with wire.Attacker(address) as attacker:
            attacker.flood(wire.endless_header(8 * MIB, how))
    return attack


ATTACKS = {"300,000 calls that are reset at once": resets,
           "8 MiB of one header in small CONTINUATIONs": endless_header("continuations"),
           "8 MiB of one endless integer in a header": endless_header("padding")}


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if len(sys.argv) > 1 else 2
    settings = [each.split("=", 1) for each in sys.argv[2:]]
    for name, attack in ATTACKS.items():
        with Daemon(sys.argv[1], settings) as daemon:
            other = OtherClient(daemon.address)
            other.start()
            if not other.first.wait(BOUND_S):
                print("the daemon does not serve")
                return 1
            before, count = daemon.memory_mib(), len(other.times)
            attack(daemon.address)
            time.sleep(AFTER_S)
            until = time.monotonic() + BOUND_S
            while len(other.times) == count and time.monotonic() < until:
                time.sleep(0.1)
            other.ending.set()
            longest = max(other.times[count:], default=BOUND_S)
            print(f"{name}: memory {before} to {daemon.memory_mib()} MiB; the longest answer to another client "
                  f"{longest:.2f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
