"""HTTP/2 by hand: a client that does with a connection what no library would do."""

import socket
import struct
import threading

from daemon import BOUND_S

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM = ACK = 1
END_HEADERS = 4
SETTINGS_INITIAL_WINDOW_SIZE = 4
SERVICE = "/semaphore.v1.SemaphoreService/"


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def header(name, value):
    """A literal field without indexing; both shorter than 127 bytes."""
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def headers_of(path, more=()):
    fields = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", path.encode()),
              (b":authority", b"x"), (b"te", b"trailers"), (b"content-type", b"application/grpc"))
    return b"".join(header(name, value) for name, value in (*fields, *more))


def grpc_message(message):
    payload = message if isinstance(message, bytes) else message.SerializeToString()
    return struct.pack(">BI", 0, len(payload)) + payload


def opening(window=65535):
    """What a client says first: each of its streams takes `window` bytes at first."""
    return PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", SETTINGS_INITIAL_WINDOW_SIZE, window))


class Stream:
    def __init__(self):
        self.data = b""
        self.ended = None  # "trailers" or "reset", and what came with it.
        self.window = 65535  # What the server still takes.


class RawConnection:
    """A connection whose streams take `window` bytes and no more, until give(). It answers pings,
    so that it is no dead one. A context manager."""

    def __init__(self, port, window=65535):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=BOUND_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.changed = threading.Condition()
        self.streams = {}
        self.closed = False
        self._sending = threading.Lock()
        self._next_id = 1
        self._window = 65535  # Of the connection, as the server takes it.
        self._window_initial = 65535
        self._send(opening(window) + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 30)))
        self.socket.settimeout(None)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def close(self):
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._reader.join(BOUND_S)
        self.socket.close()

    def call(self, method, message=None, end=True):
        """Begins a call, and sends its first message; returns the stream's number."""
        with self.changed:
            number, self._next_id = self._next_id, self._next_id + 2
            self.streams[number] = Stream()
            self.streams[number].window = self._window_initial
        path = method if method.startswith("/") else SERVICE + method
        self._send(frame(HEADERS, END_HEADERS, number, headers_of(path)))
        if message is not None:
            self.write(number, grpc_message(message), end)
        return number

    def write(self, number, data, end=False, bound_s=BOUND_S):
        """Sends bytes of the stream, as the server takes them. False: it does not take them all
        within the bound, or has ended the stream."""
        stream = self.streams[number]
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.closed or stream.ended or
                                      min(self._window, stream.window) > 0 or not data, bound_s)
                size = min(len(data), self._window, stream.window, 16384)
                if self.closed or stream.ended or (size == 0 and data):
                    return False
                self._window -= size
                stream.window -= size
            part, data = data[:size], data[size:]
            last = end and not data
            if not self._send(frame(DATA, END_STREAM if last else 0, number, part)):
                return False
            if not data:
                return True

    def give(self, number, size=1 << 20):
        """The stream takes so many bytes more."""
        self._send(frame(WINDOW_UPDATE, 0, number, struct.pack(">I", size)))

    def wait(self, condition, what, bound_s=BOUND_S):
        with self.changed:
            if not self.changed.wait_for(condition, bound_s):
                raise AssertionError(f"not within {bound_s} s: {what}")

    def wait_end(self, number, bound_s=BOUND_S):
        """("trailers", their bytes) or ("reset", the code)."""
        stream = self.streams[number]
        self.wait(lambda: stream.ended or self.closed, f"stream {number} ends", bound_s)
        return stream.ended or ("closed", b"")

    def _send(self, data):
        with self._sending:
            try:
                self.socket.sendall(data)
                return True
            except OSError:
                return False

    def _receive(self, size):
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError
            data += part
        return data

    def _read(self):
        try:
            while True:
                head = self._receive(9)
                size = int.from_bytes(head[:3], "big")
                kind, flags, number = struct.unpack(">BBI", head[3:])
                self._take(kind, flags, number, self._receive(size))
        except OSError:
            pass
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    def _take(self, kind, flags, number, payload):
        if kind == SETTINGS and not flags & ACK:
            self._send(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self._send(frame(PING, ACK, 0, payload))
        with self.changed:
            self._note(kind, flags, number, payload)
            self.changed.notify_all()

    def _note(self, kind, flags, number, payload):
        stream = self.streams.get(number)
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                name, value = struct.unpack_from(">HI", payload, at)
                if name == SETTINGS_INITIAL_WINDOW_SIZE:
                    for each in self.streams.values():
                        each.window += value - self._window_initial
                    self._window_initial = value
        elif kind == WINDOW_UPDATE:
            size = struct.unpack(">I", payload)[0]
            if number == 0:
                self._window += size
            elif stream is not None:
                stream.window += size
        elif stream is None:
            return
        elif kind == DATA:
            stream.data += payload
        elif kind == RST_STREAM:
            # A status comes with a reset after it when the request had no end.
            stream.ended = stream.ended or ("reset", payload)
        elif kind == HEADERS and flags & END_STREAM:
            stream.ended = ("trailers", payload)
