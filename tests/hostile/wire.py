"""Raw HTTP/2, as a hostile client writes it: frames are put together byte by byte, and nothing that comes back is
obeyed. Loopback only."""

import os
import socket
import ssl
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))

import http2  # noqa: E402
from http2 import (ACK, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PREFACE, SETTINGS,  # noqa: E402,F401
                   WINDOW_UPDATE, grpc_message)

PRIORITY, PUSH, CONTINUATION = 2, 5, 9
RESET, INITIAL_WINDOW_SIZE = http2.RST_STREAM, http2.SETTINGS_INITIAL_WINDOW_SIZE
PROTOCOL_ERROR, ENHANCE_YOUR_CALM = 0x1, 0xb
BOUND_S = 40.0


def frame(kind, payload=b"", flags=0, stream=0):
    return http2.frame(kind, flags, stream, payload)


def settings(pairs=()):
    return frame(SETTINGS, b"".join(struct.pack(">HI", key, value) for key, value in pairs))


def integer(value, bits, first=0, padding=0):
    """HPACK's (RFC 7541, 5.1). `padding` zero bytes, which say nothing, make it as long as one likes."""
    most = (1 << bits) - 1
    if value < most and not padding:
        return bytes([first | value])
    out = bytearray([first | most])
    value -= most
    while value >= 0x80:
        out.append(value & 0x7f | 0x80)
        value >>= 7
    if not padding:
        out.append(value)
        return bytes(out)
    out.append(value | 0x80)
    return bytes(out) + b"\x80" * (padding - 1) + b"\x00"


def literal(name, value):
    """A header that is not taken into the table."""
    return b"\x00" + integer(len(name), 7) + name + integer(len(value), 7) + value


def call_headers(method, token=None, more=()):
    """The header block of a call of this method of the service."""
    block = b"\x83\x86"  # :method POST, :scheme http
    block += literal(b":path", http2.SERVICE.encode() + method)
    block += literal(b":authority", b"localhost") + literal(b"te", b"trailers")
    block += literal(b"content-type", b"application/grpc")
    if token:
        block += literal(b"authorization", b"Bearer " + token.encode())
    return block + b"".join(literal(name, value) for name, value in more)


def call(stream, method, body, token=None, more=()):
    """A whole call, with its end."""
    return (frame(HEADERS, call_headers(method, token, more), END_HEADERS, stream) +
            frame(DATA, grpc_message(body), END_STREAM, stream))


class Attacker:
    """One connection. A context manager."""

    def __init__(self, address, authority_file=None, greeting=PREFACE + settings(), source=None):
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=BOUND_S, source_address=source and (source, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if authority_file:
            context = ssl.create_default_context(cafile=authority_file)
            context.set_alpn_protocols(["h2"])
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        self.sent = 0
        self._left = b""
        self.send(greeting)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.socket.close()

    def send(self, data):
        """False: the daemon has closed the connection, or takes no more within the bound."""
        try:
            self.socket.sendall(data)
        except OSError:
            return False
        self.sent += len(data)
        return True

    def flood(self, parts):
        """Sends until the daemon has had enough, or there are no more. How many parts went."""
        count = 0
        for part in parts:
            if not self.send(part):
                break
            count += 1
        return count

    def frames(self):
        """What the daemon says until it ends: (kind, flags, stream, payload)."""
        data = self._left
        while True:
            while len(data) >= 9:
                length = int.from_bytes(data[:3], "big")
                if len(data) < 9 + length:
                    break
                kind, flags, stream = struct.unpack(">BBI", data[3:9])
                payload, data = data[9:9 + length], data[9 + length:]
                self._left = data
                yield kind, flags, stream, payload
            try:
                more = self.socket.recv(1 << 16)
            except (ConnectionError, ssl.SSLError):
                return
            if not more:
                return
            data += more
            self._left = data

    def end(self):
        """Waits until the daemon closes the connection. The error code of its GOAWAY; None: it sent none."""
        code = None
        for kind, _, _, payload in self.frames():
            if kind == GOAWAY:
                code = struct.unpack(">I", payload[4:8])[0]
        return code

    def time_to_end(self):
        """(seconds, code): how long the daemon takes from now on to close the connection."""
        begun = time.monotonic()
        code = self.end()
        return time.monotonic() - begun, code


def resets(count, token=None, method=b"Acquire", at_once=1000):
    """Calls that are opened and reset, in pieces of `at_once`. Each has its token, so that it gets as far as it can."""
    block = call_headers(method, token)
    header = frame(HEADERS, block, END_HEADERS, 0)[:5]
    reset = frame(RESET, struct.pack(">I", 8), 0, 0)[:5]
    stream = 1
    for _ in range(count // at_once):
        part = bytearray()
        for _ in range(at_once):
            place = struct.pack(">I", stream)
            part += header + place + block + reset + place + b"\0\0\0\x08"
            stream += 2
        yield bytes(part)


def endless_header(size, how):
    """One header whose value never ends, `size` bytes of it, in pieces. `how`: "frame", one HEADERS frame of that
    length; "continuations", small frames; "padding", the zeros of an endless integer."""
    if how == "padding":
        start, fill = b"\x00\x7f", b"\x80"
    else:
        start, fill = b"\x00" + integer(1, 7) + b"x" + integer(size * 2, 7), b"y"
    piece = fill * (1 << 14)
    if how == "frame":
        length = min(size, (1 << 24) - 1)
        yield struct.pack(">I", length)[1:] + struct.pack(">BBI", HEADERS, 0, 1) + start
        for _ in range(length // len(piece)):
            yield piece
        return
    small = piece[:1 << 10]
    yield frame(HEADERS, start, 0, 1)
    for _ in range(size // len(small)):
        yield frame(CONTINUATION, small, 0, 1)
