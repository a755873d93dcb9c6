"""The engine and the daemons of a storm, and what can befall them."""

import contextlib
import os
import signal
import time

from consul import ConsulServer
from daemon import Daemon
from pausing import pause
from ports import free_port
from postgres import PostgresServer, children

NODE_TTL_S = 5.0
SETTINGS = {"node_ttl": f"{NODE_TTL_S:.0f}s", "resume_grace": "4s"}
BACK_BOUND_S = 60.0
STORES = {"postgres": (PostgresServer, {"schema": "storm"}),
          "consul": (ConsulServer, {"prefix": "storm"})}


class World:
    """A context manager. On the embedded store one daemon, which is its own engine; otherwise
    two."""

    def __init__(self, engine, folder, book):
        self.engine, self.book = engine, book
        self.server = None
        self._stack = contextlib.ExitStack()
        names, store = ["a"], "sqlite://" + os.path.join(folder, "state.db")
        if engine != "sqlite":
            kind, arguments = STORES[engine]
            self.server = kind(os.path.join(folder, engine))
            os.mkdir(self.server.folder)
            self._stack.callback(self.server.remove)
            self.server.start()
            names, store = ["a", "b"], self.server.url(**arguments)
        self.daemons = {name: self._daemon(name, store) for name in names}

    def _daemon(self, name, store):
        daemon = Daemon({**SETTINGS, "node_id": name}, port=free_port(), store=store)
        self._stack.callback(daemon.close)
        return daemon

    def __enter__(self):
        with contextlib.ExitStack() as on_error:
            on_error.push(self._stack)
            for name in self.daemons:
                self._back(name)
            on_error.pop_all()
        return self

    def __exit__(self, *exception):
        return self._stack.__exit__(*exception)

    @property
    def addresses(self):
        return [daemon.address for daemon in self.daemons.values()]

    def _back(self, name):
        """Until it serves. One that cannot join, or was declared dead meanwhile, has ended."""
        daemon = self.daemons[name]
        deadline = time.monotonic() + BACK_BOUND_S
        while not (daemon.process and daemon.process.poll() is None and daemon.is_serving()):
            if time.monotonic() > deadline:
                raise AssertionError(f"the daemon {name} is not back: {daemon.log()[-3000:]}")
            if daemon.process is None or daemon.process.poll() is not None:
                daemon.spawn()
            time.sleep(0.05)

    def strike(self, planned):
        """The fault and its end: all serves again, when this returns."""
        if planned.target == "engine":
            return self._strike_engine(planned)
        names = sorted(self.daemons)
        if planned.target == "daemon":
            names = [names[planned.index % len(names)]]
        faults = [self.book.begin(planned.kind, f"daemon {name}") for name in names]
        for name in names:
            if planned.kind == "kill":
                self.daemons[name].kill9()
            else:
                pause(self.daemons[name].process.pid)
        time.sleep(planned.seconds)
        for name in names:
            if planned.kind == "stop":
                self.daemons[name].signal(signal.SIGCONT)
        for name, fault in zip(names, faults):
            self._back(name)
            self.book.end(fault)
        return None

    def _strike_engine(self, planned):
        fault = self.book.begin(planned.kind, "engine")
        if planned.kind == "stop":
            self.server.pause()
            time.sleep(planned.seconds)
            self.server.resume()
        else:
            self._kill_engine()
            time.sleep(planned.seconds)
            self.server.start()
        self.book.end(fault)
        self.mend()

    def _kill_engine(self):
        pid = self.server.pid()
        if isinstance(self.server, PostgresServer):
            # Not one by one: the first one that ends badly makes the server start the others again.
            pids = [pid, *children(pid)]
            for each in pids:
                with contextlib.suppress(ProcessLookupError):
                    pause(each)
            for each in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
            self.server.stop()
        else:
            self.server.kill()

    def mend(self):
        """A daemon that ended by itself, since the engine was away for too long, is started
        again."""
        for name, daemon in sorted(self.daemons.items()):
            if daemon.process.poll() is not None:
                fault = self.book.begin("end", f"daemon {name}")
                self._back(name)
                self.book.end(fault)

    def held(self, semaphores):
        """How many permits are held, and how many requests wait."""
        client = next(iter(self.daemons.values())).client()
        found = [client.describe(name) for name in semaphores]
        return sum(each.held for each in found), sum(each.waiting for each in found)
