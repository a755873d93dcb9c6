"""A real Consul server for the tests, on loopback ports, with its data on disk.

As a program:  consul.py start FOLDER    starts one if none runs there; FOLDER/url says how to reach it
               consul.py stop FOLDER     stops it and removes its data
As classes: ConsulServer, one that is alone; ConsulServers, several that elect a leader; ConsulAgent,
an agent that is no server and stands before some. Processes are known by their ids, never by a name.
"""

import json
import os
import shutil
import signal
import sys
import urllib.error
import urllib.request

from ports import free_port
from server_process import BOUND_S, ServerProcess

PORTS = ("http", "server", "serf_lan")
CONFIGURATION = {
    "bind_addr": "127.0.0.1",
    "client_addr": "127.0.0.1",
    "log_level": "WARN",
    "disable_update_check": True,
    "leave_on_terminate": False,
}
SERVER = {
    "server": True,
    # A lone server that was started again need not wait for others before it leads.
    "bootstrap_expect": 1,
    "performance": {"raft_multiplier": 1},
}


class Consul(ServerProcess):
    """A Consul process under `folder`."""

    stop_signal = signal.SIGINT

    def __init__(self, folder, settings, name, token=None):
        """`settings`: more of its configuration, used at each start; its "ports" are added to those
        that are chosen. `name`: of its node, which no other has that it knows. `token`: what
        requests of this object carry."""
        super().__init__(folder)
        self.name = name
        self.settings = settings
        self._token = token

    @property
    def port(self):
        return self._known["http"]

    @property
    def serf_address(self):
        """Where others join it."""
        return f"127.0.0.1:{self._known['serf_lan']}"

    @property
    def raft_address(self):
        """By this the servers know each other."""
        return f"127.0.0.1:{self._known['server']}"

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def url(self, prefix="", port=None):
        """`port` of a proxy, for example."""
        url = f"consul://127.0.0.1:{port or self.port}"
        return f"{url}/{prefix}" if prefix else url

    # ---- Start and stop ----

    def choose_ports(self):
        """They are kept until remove()."""
        self._load()
        if self._known is None:
            self._known = {name: free_port() for name in PORTS}

    def launch(self):
        """Starts it unless it runs, and waits for nothing. Keeps its ports."""
        os.makedirs(self.data, exist_ok=True)
        self.choose_ports()
        if self.pid() is None:
            self._launch()

    def start(self):
        """Starts it unless it runs, and waits until it reaches a leader that takes writes."""
        self.launch()
        self._wait(self.is_ready, "consul has a leader")
        self._write_url(self.url())
        return self

    # ---- HTTP ----

    def request(self, method, path, body=None):
        """(status, what the JSON of the answer says or its text)."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.address}/v1/{path}", data=data,
                                         method=method)
        if self._token is not None:
            request.add_header("X-Consul-Token", self._token)
        try:
            with urllib.request.urlopen(request, timeout=BOUND_S) as reply:
                status, text = reply.status, reply.read()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read()
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text.decode(errors="replace")

    # ---- Inside ----

    def _launch(self):
        program = shutil.which("consul")
        if program is None:
            raise RuntimeError("no Consul is installed: deploy/install.sh --test")
        ports = {name: self._known[name] for name in PORTS}
        ports = {**ports, "dns": -1, "grpc": -1, "serf_wan": -1, **self.settings.get("ports", {})}
        configuration = {**CONFIGURATION, "data_dir": self.data, "node_name": self.name,
                         **self.settings, "ports": ports}
        path = os.path.join(self.folder, "consul.json")
        with open(path, "w", encoding="ascii") as file:
            json.dump(configuration, file)
        self._spawn([program, "agent", f"-config-file={path}", f"-data-dir={self.data}"])

    def is_ready(self):
        """There is a leader, and it takes writes."""
        self._check_runs("consul")
        try:
            status, leader = self.request("GET", "status/leader")
            if status != 200 or not leader:
                return False
            # A leader may not yet take writes.
            return self.request("PUT", "kv/semaphored-test-ready", b"")[0] == 200
        except OSError:
            return False


class ConsulServer(Consul):
    """A server that needs no other."""

    def __init__(self, folder, settings=None, token=None, name="test"):
        super().__init__(folder, {**SERVER, **(settings or {})}, name, token)


class ConsulAgent(Consul):
    """An agent that is no server, as on each machine of a larger installation: it asks `servers`
    (Consul each), which have been started."""

    def __init__(self, folder, servers, name="agent"):
        super().__init__(folder, {
            "retry_join": [server.serf_address for server in servers],
            "retry_interval": "1s"}, name)


class ConsulServers:
    """`count` servers that elect a leader among them. As a context manager like Consul."""

    def __init__(self, folder, count=3):
        self.all = [ConsulServer(os.path.join(folder, f"server-{number}"), name=f"server-{number}")
                    for number in range(count)]

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.remove()
            raise

    def __exit__(self, *unused):
        self.remove()

    def start(self):
        """Starts those that do not run, and waits until each of them reaches a leader."""
        for server in self.all:
            server.choose_ports()
        for server in self.all:
            server.settings.update({
                "bootstrap_expect": len(self.all), "retry_interval": "1s",
                "retry_join": [other.serf_address for other in self.all if other is not server]})
            server.launch()
        for server in self.all:
            server.start()
        return self

    def leader(self):
        """The one that the others follow, or None while there is none that they agree upon."""
        said = set()
        for server in self.all:
            if server.pid() is None:
                continue
            try:
                said.add(server.request("GET", "status/leader")[1])
            except OSError:
                return None
        leaders = [server for server in self.all
                   if said == {server.raft_address} and server.pid() is not None]
        return leaders[0] if leaders else None

    def are_in_step(self):
        """Each votes, is healthy in the eyes of the leader, and has applied all that the leader had
        when this began."""
        try:
            leader = self.leader()
            if leader is None:
                return False
            last = int(self._raft(leader)["last_log_index"])
            _, raft = leader.request("GET", "operator/raft/configuration")
            # Of an unhealthy one: 429.
            status, health = leader.request("GET", "operator/autopilot/health")
            return (status == 200 and health["Healthy"]
                    and {server["Address"] for server in raft["Servers"] if server["Voter"]}
                    == {server.raft_address for server in self.all}
                    and all(int(self._raft(server)["applied_index"]) >= last
                            for server in self.all))
        except (OSError, TypeError, KeyError):  # An error has a text, and not these fields.
            return False

    @staticmethod
    def _raft(server):
        return server.request("GET", "agent/self")[1]["Stats"]["raft"]

    def followers(self):
        leader = self.leader()
        return [server for server in self.all if server is not leader]

    def remove(self):
        for server in self.all:
            server.remove()


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("start", "stop"):
        sys.exit(__doc__)
    server = ConsulServer(sys.argv[2])
    if sys.argv[1] == "start":
        server.start()
        print(f"consul {server.pid()} on port {server.port}")
    else:
        server.remove()


if __name__ == "__main__":
    main()
