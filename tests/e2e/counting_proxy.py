"""A proxy between a daemon and an engine that speaks HTTP, which remembers what was asked."""

import dataclasses
import json
import time
import urllib.parse

from proxy import TcpProxy

METHODS = (b"GET ", b"PUT ", b"POST ", b"DELETE ")


@dataclasses.dataclass(frozen=True)
class HttpRequest:
    method: str
    path: str
    query: dict  # Of each name the last value; "" if it has none.
    headers: dict  # By their names in small letters.
    body: bytes
    at_s: float  # On the steady clock, when it had come in whole.


class Request(HttpRequest):
    """One of Consul."""

    def waits(self):
        """It is a blocking query."""
        return "index" in self.query

    def operations(self):
        """(verb, key) of each operation of a transaction."""
        if self.path != "/v1/txn":
            return []
        return [(each["KV"]["Verb"], each["KV"]["Key"]) for each in json.loads(self.body)]

    def beats(self):
        """It belongs to the daemons' membership: a heartbeat, or the reading of all."""
        keys = [key for _, key in self.operations()]
        return bool(keys) and all("/.semaphored/h/" in key or "/.semaphored/n/" in key or
                                  key.endswith(("/.semaphored/number", "/.semaphored/version"))
                                  for key in keys)

    def writes(self):
        return any(verb != "get-tree" for verb, _ in self.operations())

    def __str__(self):
        """What it is about, so that requests of one kind look the same."""
        if self.beats():
            return "heartbeat" if self.writes() else "reading of the heartbeats"
        if self.path == "/v1/txn":
            return "commit" if self.writes() else "reading"
        return f"{self.method} {self.path}{' (waits)' if self.waits() else ''}"


class CountingProxy(TcpProxy):
    """Requests of HTTP/1.1 with a Content-Length, as libcurl sends them, are remembered."""

    def __init__(self, port, kind=Request):
        """`kind`: the HttpRequest that knows what the engine's mean; or what is to be remembered of its fields."""
        self.asked = []  # Each of them, in the order in which they came.
        self._kind = kind
        super().__init__(port)

    def _pump(self, source, sink):
        super()._pump(_Reading(source, self.asked, self._kind), sink)


class _Reading:
    """A socket whose data is looked at on its way."""

    def __init__(self, source, asked, kind):
        self._source, self._asked, self._kind, self._data = source, asked, kind, b""
        self._ignores = False  # These are answers.

    def recv(self, size):
        data = self._source.recv(size)
        if not self._ignores:
            self._data += data
            self._ignores = self._data.startswith(b"HTTP")
            while not self._ignores and self._take():
                pass
        return data

    def _take(self):
        """Takes one request off the data; False: it has not come in whole."""
        head, found, rest = self._data.partition(b"\r\n\r\n")
        if not found:
            return False
        if not head.startswith(METHODS):
            raise AssertionError(f"not understood: {head[:60]!r}")
        first, *lines = head.decode("latin-1").split("\r\n")
        parts = [line.partition(":") for line in lines]
        headers = {name.lower(): value.strip() for name, _, value in parts}
        length = int(headers.get("content-length", 0))
        if len(rest) < length:
            return False
        method, target, _ = first.split(" ")
        path, _, query = target.partition("?")
        self._asked.append(self._kind(
            method, urllib.parse.unquote(path),
            dict(urllib.parse.parse_qsl(query, keep_blank_values=True)), headers, rest[:length],
            time.monotonic()))
        self._data = rest[length:]
        return True

    def __getattr__(self, name):
        return getattr(self._source, name)
