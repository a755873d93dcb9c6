"""A TCP proxy between a daemon and its engine, which can behave as a bad network does."""

import contextlib
import os
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "engines"))

from ports import free_port  # noqa: E402  the folder has to be on the path first


class TcpProxy:
    """Forwards a loopback port to another one. Threads of its own; any thread may call it.

    What it cannot show: the kernel acknowledges whatever is sent to the proxy, so keepalives of TCP
    find nothing wrong. Who is cut off has to notice by the answers that do not come.
    """

    def __init__(self, target_port):
        self._target_port = target_port
        self.port = free_port()
        self._listener = None
        self._lock = threading.Lock()
        self._pairs = set()
        self._passing = threading.Event()
        self._delay_s = 0.0
        self._closed = False
        self.heal()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def cut(self):
        """All connections stay open, new ones are taken, and nothing passes in either direction,
        not even their end. What was sent meanwhile arrives after heal(), as after a lost route."""
        self._passing.clear()

    def refuse(self):
        """New connections are refused; those that stand go on, see close_all()."""
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # Wakes accept(), which close() does not.
            listener.close()

    def close_all(self):
        """Ends all connections that stand, also while nothing passes."""
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            for one in pair:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def delay(self, milliseconds):
        """From now on every piece of data waits for this long, in each direction."""
        self._delay_s = milliseconds / 1000

    def heal(self):
        """As it was at first."""
        self._delay_s = 0.0
        with self._lock:
            if self._listener is None and not self._closed:
                self._listener = socket.create_server(("127.0.0.1", self.port))
                threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        self._passing.set()

    def close(self):
        self._closed = True
        self.refuse()
        self.close_all()
        self._passing.set()

    def _accept(self, listener):
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near):
        self._passing.wait()
        try:
            far = socket.create_connection(("127.0.0.1", self._target_port))
        except OSError:
            near.close()
            return
        pair = (near, far)
        for one in pair:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._pairs.add(pair)
        back = threading.Thread(target=self._pump, args=(far, near), daemon=True)
        back.start()
        self._pump(near, far)
        back.join()
        with self._lock:
            self._pairs.discard(pair)
        near.close()
        far.close()

    def _pump(self, source, sink):
        """Until `source` ends; then tells `sink`. An error ends both directions."""
        try:
            while data := source.recv(65536):
                if self._delay_s:
                    time.sleep(self._delay_s)
                self._passing.wait()
                sink.sendall(data)
            self._passing.wait()
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            for one in (source, sink):
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
