"""A small web service that falls over when too many call it at once.

It is the third-party service of so many stories: it works on one request for a while, and refuses
(503) every request beyond `--at-once` at the same time. It counts what it sees:
GET /counts returns the counts, and POST /counts sets them to zero.
"""

import argparse
import http.server
import json
import threading
import time


class Counts:
    """What the service has seen. Any thread."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = 0
        self.reset()

    def reset(self) -> None:
        self.done = self.refused = self.peak = 0

    def as_dict(self) -> dict:
        return {"done": self.done, "refused": self.refused, "peak": self.peak}


class Handler(http.server.BaseHTTPRequestHandler):
    """One request. `counts`, `at_once` and `work_ms` are set on the class by main()."""

    counts = Counts()
    at_once = 4
    work_ms = 80

    def do_GET(self) -> None:  # noqa: N802, the name is http.server's
        if self.path == "/counts":
            with self.counts.lock:
                return self.answer(200, self.counts.as_dict())
        with self.counts.lock:
            self.counts.inside += 1
            # What reaches the service counts for the peak, whether it is served or not.
            self.counts.peak = max(self.counts.peak, self.counts.inside)
            refused = self.counts.inside > self.at_once
            if refused:
                self.counts.refused += 1
        if not refused:
            time.sleep(self.work_ms / 1000)  # The work that the service is there for.
        with self.counts.lock:
            self.counts.inside -= 1
            if not refused:
                self.counts.done += 1
        return self.answer(503 if refused else 200, {"ok": not refused})

    def do_POST(self) -> None:  # noqa: N802
        with self.counts.lock:
            self.counts.reset()
        return self.answer(200, {})

    def answer(self, code: int, body: dict) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Says nothing: the counts tell."""


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at-once", type=int, default=4, help="requests served at once (default 4)")
    parser.add_argument("--work-ms", type=int, default=80, help="time a request takes (default 80)")
    parser.add_argument("--host", default="127.0.0.1", help="address to serve at (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=0, help="port to serve at (default: any that is free)")
    parser.add_argument("--port-file", help="where to write the port that it serves on")
    arguments = parser.parse_args()
    Handler.at_once, Handler.work_ms = arguments.at_once, arguments.work_ms
    server = Server((arguments.host, arguments.port), Handler)
    if arguments.port_file:
        with open(arguments.port_file, "w", encoding="ascii") as file:
            file.write(f"{server.server_port}\n")
    server.serve_forever()


if __name__ == "__main__":
    main()
