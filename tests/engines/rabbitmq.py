"""A real RabbitMQ for the tests: a node of its own on loopback ports, with folders of its own.

As a program:  rabbitmq.py start FOLDER    starts one if none runs there; FOLDER/url says how to
                                           reach it
               rabbitmq.py stop FOLDER     stops it and removes its data
As classes: RabbitServer, one that is alone; RabbitCluster, several nodes. Processes are known by their ids, never
by a name.

SEMAPHORED_TEST_SUITE names a suite of Debian whose version is run: root.py. Without it: this machine's.
"""

import contextlib
import glob
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from urllib.parse import quote

from pausing import pause
from ports import free_port
from postgres import is_running, secret
from root import in_root, root_of
from users import owner_of, run_as

BOUND_S = 120.0
USER = "semaphored"
CONFIGURATION = """
listeners.tcp.1 = 127.0.0.1:{port}
default_user = {user}
default_pass = {password}
loopback_users = none
log.file.level = info
log.console = false
vm_memory_high_watermark.relative = 0.6
disk_free_limit.absolute = 50MB
{settings}
"""
# 4.3 announces that it refuses these queues by default, and the 4.3.6 of Debian does not: the tests have it refuse them.
# 3.10 does not know the setting.
STRICT = "deprecated_features.permit.transient_nonexcl_queues = false\n"
# The schedulers sleep when there is nothing to do: the tests share two processors with it.
ERLANG = "-kernel inet_dist_use_interface {127,0,0,1} +sbwt none +sbwtdcpu none +sbwtdio none"

# Erlang: the node that leads the queue, or `none` after so many seconds.
IN_STEP = """
Value = fun(Key, Row) -> proplists:get_value(Key, Row) end,
Rows = fun() -> rabbit_quorum_queue:status(<<"/">>, <<"%(queue)s">>) end,
Runs = fun(Queue) -> [{online, Online}] = rabbit_quorum_queue:info(Queue, [online]), length(Online) =:= %(nodes)d end,
Has = fun(Last, Row) -> lists:member(Value(<<"Raft State">>, Row), [leader, follower])
    andalso is_integer(Value(<<"Commit Index">>, Row)) andalso Value(<<"Commit Index">>, Row) >= Last end,
Look = fun() ->
  case {[Row || Row <- Rows(), Value(<<"Raft State">>, Row) =:= leader],
        lists:all(Runs, rabbit_amqqueue:list_by_type(rabbit_quorum_queue))} of
    {[Leader], true} ->
      case [Row || Row <- Rows(), Has(Value(<<"Log Index">>, Leader), Row)] of
        All when length(All) =:= %(nodes)d -> Value(<<"Node Name">>, Leader);
        _ -> none
      end;
    _ -> none
  end
end,
End = erlang:monotonic_time(second) + %(seconds)d,
Wait = fun Again() ->
  case {Look(), erlang:monotonic_time(second) < End} of
    {none, true} -> timer:sleep(100), Again();
    {Node, _} -> Node
  end
end,
Wait().
"""


def programs(root=None):
    """The folder of rabbitmq-server and rabbitmqctl themselves, without Debian's wrappers, which
    change the user; in a root, as programs of the root see it."""
    inside = root or ""
    for folder in [f"{inside}/usr/lib/rabbitmq/bin",
                   *sorted(glob.glob(f"{inside}/usr/lib/rabbitmq/lib/*/sbin"))]:
        if os.path.exists(os.path.join(folder, "rabbitmq-server")):
            return folder[len(inside):]
    raise RuntimeError("no RabbitMQ server is installed: deploy/install.sh --test")


def as_server_user(command):
    return run_as("rabbitmq", command)


class RabbitServer:
    """A node under `folder`, which outlives this object until stop(). As a context manager it is
    started, stopped and removed."""

    def __init__(self, folder, settings="", advanced="[].", suite=None):
        """`settings`: lines of rabbitmq.conf; `advanced`: the terms of advanced.config. Both are
        used when the folder is made. `suite`: of Debian, whose version is run; None: what
        SEMAPHORED_TEST_SUITE names, or this machine's."""
        self.folder = os.path.abspath(folder)
        self._suite = os.environ.get("SEMAPHORED_TEST_SUITE") if suite is None else suite
        self._settings = settings
        self._advanced = advanced
        self._shared = {}  # What it has in common with the other nodes of a cluster.
        self._known_path = os.path.join(self.folder, "server.json")
        self._known = None
        self._process = None  # Only if this object started it.

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.remove()
            raise

    def __exit__(self, *unused):
        self.remove()

    @property
    def port(self):
        return self._known["port"]

    @property
    def home(self):
        return self._known["home"]

    def url(self, port=None, options=""):
        password = quote(self._known["password"], safe="")
        return f"amqp://{USER}:{password}@127.0.0.1:{port or self.port}/{options}"

    # ---- Start and stop ----

    def start(self):
        """Starts it unless it runs, and waits until it answers. Keeps its ports."""
        self.launch()
        self._wait(self._answers, "rabbitmq accepts connections")
        if self._suite:
            print(f"found: rabbitmq {self.version()}", flush=True)
        with open(os.path.join(self.folder, "url"), "w", encoding="ascii", opener=secret) as file:
            file.write(self.url())
        return self

    def launch(self):
        """Starts it unless it runs, and waits for nothing."""
        self._load()
        if self._known is None:
            self._initialise()
        if self.pid() is None:
            self._launch()

    def join(self, other):
        """Before the first start: it becomes a node of the cluster of `other`, which runs."""
        known = other._known
        self._shared = {name: known[name] for name in ("epmd", "epmd_port", "password", "cookie")}
        self._settings += ("cluster_formation.peer_discovery_backend = classic_config\n"
                           f"cluster_formation.classic_config.nodes.1 = {known['node']}\n")

    def stop(self, kill=False):
        """Cleanly, or as by kill -9."""
        self._load()
        pid = self.pid()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGKILL if kill else signal.SIGTERM)
            self._wait(lambda: not is_running(pid), f"process {pid} ends")
        if self._process is not None:
            self._process.wait(BOUND_S)
            self._process = None

    def restart(self, kill=False):
        self.stop(kill)
        self.start()

    def pause(self):
        pause(self.pid())

    def resume(self):
        os.kill(self.pid(), signal.SIGCONT)

    def remove(self):
        """Stops it and removes its data; the log stays if the folder is wanted by others."""
        self.stop(kill=True)
        if self._known is None:
            return
        epmd = self._running("epmd")
        if epmd is not None:
            os.kill(epmd, signal.SIGKILL)
        with contextlib.suppress(OSError):
            shutil.copy(self.log_path, os.path.join(self.folder, "server.log"))
        shutil.rmtree(self.home, ignore_errors=True)
        for name in ("server.json", "url"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.folder, name))
        self._known = None

    @property
    def log_path(self):
        return os.path.join(self.home, "log", "node.log")

    @property
    def node(self):
        """Its name in the cluster."""
        return self._known["node"]

    def pid(self):
        """Of the node; None if it does not run."""
        return self._running("node")

    def version(self):
        """As the server says it: "3.10.8"."""
        self._load()
        # A short string, the type of a long one, and its length.
        _, found, rest = self._greeting().partition(b"\x07versionS")
        if not found:
            raise RuntimeError("rabbitmq begins without saying its version")
        return rest[4:4 + int.from_bytes(rest[:4], "big")].decode()

    def ctl(self, *arguments):
        """rabbitmqctl; takes some seconds. Returns what it prints."""
        command = [self._program("rabbitmqctl"), "--quiet", *arguments]
        done = subprocess.run(self._as_server_user(command), cwd=self.home,
                              env=self._environment(), text=True, capture_output=True,
                              timeout=BOUND_S, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"rabbitmqctl {' '.join(arguments)} ended with {done.returncode}:\n"
                               f"{done.stdout}{done.stderr}")
        return done.stdout

    # ---- Inside ----

    def _load(self):
        with contextlib.suppress(FileNotFoundError, ValueError):
            with open(self._known_path, encoding="ascii") as file:
                self._known = json.load(file)

    def _initialise(self):
        os.makedirs(self.folder, exist_ok=True)
        # Not below the folder: a checkout below root's home cannot be reached by others.
        home = tempfile.mkdtemp(prefix="semaphored-rabbitmq-")
        known = {"home": home, "port": free_port(), "distribution_port": free_port(),
                 "epmd_port": free_port(), "password": secrets.token_hex(16),
                 "cookie": secrets.token_hex(16), **self._shared,
                 "node": f"semaphored-{secrets.token_hex(4)}@localhost"}
        with open(os.path.join(home, "rabbitmq.conf"), "w", encoding="ascii") as file:
            file.write(CONFIGURATION.format(port=known["port"], user=USER,
                                            password=known["password"], settings=self._settings))
            file.write(STRICT if self._suite else "")
        with open(os.path.join(home, "advanced.config"), "w", encoding="ascii") as file:
            file.write(self._advanced + "\n")
        with open(os.path.join(home, "enabled_plugins"), "w", encoding="ascii") as file:
            file.write("[].\n")
        with open(os.path.join(home, ".erlang.cookie"), "w", encoding="ascii",
                  opener=secret) as file:
            file.write(known["cookie"])
        os.mkdir(os.path.join(home, "log"))
        owner = owner_of("rabbitmq")
        if owner is not None:
            for path in [home, *glob.glob(os.path.join(home, "*")),
                         os.path.join(home, ".erlang.cookie")]:
                os.chown(path, *owner)
        os.chmod(os.path.join(home, ".erlang.cookie"), 0o400)
        self._remember(known)

    def _remember(self, known):
        self._known = known
        with open(self._known_path, "w", encoding="ascii", opener=secret) as file:
            json.dump(known, file)

    def _launch(self):
        # The node would start its own, which nobody could name later.
        if self._running("epmd") is None:
            epmd = self._start(["epmd", "-address", "127.0.0.1", "-port",
                                str(self._known["epmd_port"])], "epmd")
            self._wait(lambda: self._listens(self._known["epmd_port"]), "epmd listens")
            self._remember({**self._known, "epmd": self._identity(epmd.pid)})
        self._process = self._start([self._program("rabbitmq-server")], "output")
        self._remember({**self._known, "node_process": self._identity(self._process.pid)})

    def _program(self, name):
        return os.path.join(programs(root_of(self._suite)), name)

    def _as_server_user(self, command):
        return in_root(root_of(self._suite), as_server_user(command))

    def _start(self, command, log):
        with open(os.path.join(self.folder, log + ".log"), "ab") as file:
            # In a session of its own: what is sent to a terminal's processes is not for it.
            return subprocess.Popen(self._as_server_user(command), cwd=self.home,
                                    env=self._environment(), stdin=subprocess.DEVNULL,
                                    stdout=file, stderr=file, start_new_session=True)

    @staticmethod
    def _identity(pid):
        """A process id, and when that process began: the number alone is used again."""
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return [pid, file.read().rpartition(")")[2].split()[19]]

    def _running(self, which):
        known = (self._known or {}).get("node_process" if which == "node" else which)
        if known is None or not is_running(known[0]):
            return None
        with contextlib.suppress(OSError):
            if self._identity(known[0]) == known:
                return known[0]
        return None

    @staticmethod
    def _listens(port):
        with contextlib.suppress(OSError):
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return True
        return False

    def _answers(self):
        """Whether it speaks AMQP: it accepts connections some time before it does."""
        if self.pid() is None:
            raise RuntimeError(f"rabbitmq ended; its log:\n{self._log_end()}")
        with contextlib.suppress(OSError):
            return self._greeting()[:1] == b"\x01"
        return False

    def _greeting(self):
        """The frame by which it begins."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
            connection.sendall(b"AMQP\x00\x00\x09\x01")
            with connection.makefile("rb") as file:
                head = file.read(7)
                return head + file.read(int.from_bytes(head[3:], "big"))

    def _wait(self, condition, what):
        deadline = time.monotonic() + BOUND_S
        while not condition():
            if self._process is not None:
                self._process.poll()
            if time.monotonic() > deadline:
                raise RuntimeError(f"not within {BOUND_S} s: {what}; the log ends with:\n"
                                   f"{self._log_end()}")
            time.sleep(0.05)

    def _log_end(self):
        text = ""
        for path in (os.path.join(self.folder, "output.log"), self.log_path):
            with contextlib.suppress(OSError):
                with open(path, encoding="utf-8", errors="replace") as file:
                    text += file.read()[-2000:]
        return text

    def _environment(self):
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("RABBITMQ", "ERL"))}
        home = self.home
        return {**kept, "HOME": home, "LC_ALL": "C.UTF-8",
                "RABBITMQ_NODENAME": self._known["node"],
                "RABBITMQ_CONFIG_FILE": os.path.join(home, "rabbitmq.conf"),
                "RABBITMQ_ADVANCED_CONFIG_FILE": os.path.join(home, "advanced.config"),
                "RABBITMQ_CONF_ENV_FILE": "/dev/null",
                # The script becomes the node, and is no parent that would be signalled instead.
                "RUNNING_UNDER_SYSTEMD": "1",
                "RABBITMQ_ENABLED_PLUGINS_FILE": os.path.join(home, "enabled_plugins"),
                "RABBITMQ_MNESIA_BASE": os.path.join(home, "data"),
                "RABBITMQ_LOG_BASE": os.path.join(home, "log"),
                "RABBITMQ_LOGS": os.path.join(home, "log", "node.log"),
                "RABBITMQ_PID_FILE": os.path.join(home, "pid"),
                "RABBITMQ_GENERATED_CONFIG_DIR": os.path.join(home, "generated"),
                "RABBITMQ_DIST_PORT": str(self._known["distribution_port"]),
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ERLANG,
                "ERL_EPMD_PORT": str(self._known["epmd_port"]),
                "ERL_EPMD_ADDRESS": "127.0.0.1",
                # The script becomes the node. Otherwise it stays as its parent, and would be killed
                # in the node's place.
                "RUNNING_UNDER_SYSTEMD": "1"}


class RabbitCluster:
    """`count` nodes, each of which keeps a copy of what is in a quorum queue. As a context manager
    like RabbitServer."""

    def __init__(self, folder, count=3):
        self.all = [RabbitServer(os.path.join(folder, f"node-{number}")) for number in range(count)]

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.remove()
            raise

    def __exit__(self, *unused):
        self.remove()

    def start(self):
        """For the first time, of nodes without data."""
        first, *others = self.all
        first.start()
        for other in others:
            other.join(first)
            other.launch()
        for other in others:
            other.start()
        return self

    def in_step(self, queue):
        """Waits until each quorum queue runs on every node, and each node has committed all that the leader of
        this queue had logged when it was looked at. Returns the node that leads it."""
        asked = next(server for server in self.all if server.pid() is not None)
        # In one call, since a program of RabbitMQ's may take half a minute to start on a busy machine.
        node = asked.ctl("eval", IN_STEP % {"queue": queue, "nodes": len(self.all), "seconds": 60}).strip("'\n ")
        for server in self.all:
            if server.node == node:
                return server
        raise RuntimeError(f"the nodes are not in step for {queue} after a minute: {node}")

    def remove(self):
        for server in self.all:
            server.remove()


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("start", "stop"):
        sys.exit(__doc__)
    server = RabbitServer(sys.argv[2])
    if sys.argv[1] == "start":
        server.start()
        print(f"rabbitmq {server.pid()} on port {server.port}")
    else:
        server.remove()


if __name__ == "__main__":
    main()
