"""The daemon by HTTP, as scripts use it: http.client with JSON, and server-sent events."""

import base64
import contextlib
import http.client
import json
import re
import threading

from daemon import BOUND_S, Daemon, wait_until

SERVICE = "/semaphore.v1.SemaphoreService/"


class HttpDaemon(Daemon):
    """A daemon with HTTP on a free port."""

    def __init__(self, settings=None, **more):
        super().__init__({"http_listen": "127.0.0.1:0", "http_writes": "on", **(settings or {})},
                         **more)
        self.http_port = None

    def start(self):
        super().start()
        self.http_port = int(wait_until(
            lambda: re.findall(r"http at https?://\d+\.0\.0\.\d:(\d+)/", self.log()),
            "HTTP listens")[-1])
        return self

    @property
    def http_address(self):
        return f"127.0.0.1:{self.http_port}"

    def open_http(self):
        """A connection, not yet made."""
        return http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=BOUND_S)

    def connect(self):
        return contextlib.closing(self.open_http())

    def ask(self, method, path, body=None, headers=None):
        """Status, headers and text of the answer."""
        with self.connect() as connection:
            connection.request(method, path, body=body, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()

    def call(self, method, request, headers=None):
        """A unary call: the status of HTTP, and what the JSON says."""
        status, _, text = self.ask("POST", SERVICE + method, json.dumps(request),
                                   {"Content-Type": "application/json", **(headers or {})})
        return status, json.loads(text)

    def done(self, method, request, headers=None):
        """Of a call that succeeds."""
        status, answer = self.call(method, request, headers)
        assert status == 200, (method, status, answer)
        return answer

    def describe_http(self, semaphore, headers=None):
        return self.done("Administer", {"semaphore": semaphore, "describe": {}},
                         headers)["describe"]["semaphore"]


def error_info(error):
    """The ErrorInfo of an error's JSON, as its debug says it; the value has to be there, too."""
    for detail in error.get("details", []):
        if detail["type"] == "google.rpc.ErrorInfo":
            text = detail["value"]
            assert base64.b64decode(text + "=" * (-len(text) % 4))
            return detail["debug"]
    return {}


class Events:
    """Reads a stream of server-sent events. A context manager: leaving it closes the connection."""

    def __init__(self, daemon, method, path, request=None, headers=None):
        self.connection = daemon.open_http()
        if request is not None:
            headers = {"Content-Type": "application/json", **(headers or {})}
        self.connection.request(method, path, None if request is None else json.dumps(request),
                                headers or {})
        self.answer = self.connection.getresponse()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        # The answer holds the socket as well.
        self.answer.close()
        self.connection.close()

    def next(self):
        """Name and data of the next event; None at the end."""
        name, data = "", []
        while True:
            line = self.answer.readline().decode()
            if not line:
                return None
            line = line.rstrip("\n")
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                data.append(line[6:])
            elif not line and data:
                return name, json.loads("\n".join(data))

    def until(self, name):
        """The data of the next event of this name."""
        while True:
            event = self.next()
            assert event is not None, f"the stream ended before {name}"
            if event[0] == name:
                return event[1]


def later(function, *arguments):
    """Runs it on a thread; the result by the function that is returned."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function(*arguments)), daemon=True)
    thread.start()

    def result():
        thread.join(BOUND_S)
        assert results, "it has not ended"
        return results[0]
    return result
