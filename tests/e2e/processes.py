"""Client processes of the tests, and a proxy that can go silent."""

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading

from daemon import BOUND_S


class Holder:
    """holder.py as a process. Leaving the context kills it."""

    def __init__(self, address, semaphore, mode, ttl_ms, *flags):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "holder.py")
        self.process = subprocess.Popen(
            [sys.executable, "-B", script, address, semaphore, mode, str(ttl_ms), *flags],
            stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        self._events = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self._events.put(json.loads(line))
        self._events.put({"event": "exit"})

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
        self.kill9()
        self.process.stdout.close()

    def expect(self, *events, bound_s=BOUND_S):
        """The next event that is one of these; others are passed over."""
        while True:
            try:
                event = self._events.get(timeout=bound_s)
            except queue.Empty:
                raise AssertionError(f"none of {events} within {bound_s} s") from None
            if event["event"] in events:
                return event
            if event["event"] == "exit":
                raise AssertionError(f"the client ended before any of {events}")

    def signal(self, number):
        self.process.send_signal(number)

    def kill9(self):
        self.process.kill()
        self.process.wait(BOUND_S)


class Proxy:
    """Forwards TCP to the daemon until `go_silent`: then all stays open and nothing passes."""

    def __init__(self, target_port):
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        self._silent = threading.Event()
        self._sockets = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for one in (self._listener, *self._sockets):
            one.close()

    def go_silent(self):
        self._silent.set()

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target_port))
            except OSError:
                return
            self._sockets += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source, sink):
        try:
            while data := source.recv(65536):
                if self._silent.is_set():
                    continue  # swallowed: the sender believes that it arrived
                sink.sendall(data)
            if not self._silent.is_set():
                sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass
