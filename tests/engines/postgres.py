"""A real PostgreSQL for the tests, on a loopback port, with a data folder of its own.

As a program:  postgres.py start FOLDER    starts one if none runs there; FOLDER/url says how to
                                           reach it, as a role that is no superuser;
                                           FOLDER/url.daemon, as a role that has no right yet, and
                                           FOLDER/rights.sql gives it, on a schema {schema}, those
                                           that docs/postgres.md prints
               postgres.py stop FOLDER     stops it and removes its data
As a class: PostgresServer. fsync is on. Processes are known by their ids, never by a name.

SEMAPHORED_TEST_SUITE names a suite of Debian whose version is run: root.py. Without it: this machine's.
"""

import contextlib
import glob
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from urllib.parse import quote

from pausing import pause
from ports import free_port
from root import in_root, root_of
from users import owner_of, run_as

BOUND_S = 60.0
ROLE = "semaphored"  # Owns the database of the same name.
ADMIN = "postgres"  # The superuser of the server.
DAEMON = "daemon"  # Owns nothing.
DOCUMENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/postgres.md")
STOP_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
CONFIGURATION = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 200
"""


def binaries(root=None):
    """The folder of the server's programs, of the newest version that is installed; in a root, as
    programs of the root see it."""
    def version(folder):
        return [int(number) for number in re.findall(r"\d+", folder)]
    inside = root or ""
    folders = [path[len(inside):] for path in glob.glob(f"{inside}/usr/lib/postgresql/*/bin")]
    folders.sort(key=version, reverse=True)
    if root is None and shutil.which("pg_config"):
        folders.append(subprocess.run(["pg_config", "--bindir"], capture_output=True, text=True,
                                      check=True).stdout.strip())
    for folder in folders:
        if os.path.exists(os.path.join(inside + folder, "initdb")):
            return folder
    raise RuntimeError("no PostgreSQL server is installed (looked for initdb in "
                       f"{folders or '/usr/lib/postgresql/*/bin'}): deploy/install.sh --test")


def server_owner():
    return owner_of("postgres")


def as_server_user(command):
    return run_as("postgres", command)


def is_running(pid):
    """Zombies, which nobody may ever fetch, do not count."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(pid):
    found = []
    for path in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError):
            with open(path, encoding="ascii", errors="replace") as file:
                if int(file.read().rpartition(")")[2].split()[1]) == pid:
                    found.append(int(path.split("/")[2]))
    return found


def printed_rights(schema="semaphored", role="semaphored", database="production"):
    """The statements of docs/postgres.md that give a daemon's role its rights, for these names."""
    with open(DOCUMENT, encoding="utf-8") as file:
        statements = re.findall(r"^GRANT [^;]* TO semaphored;", file.read(), re.MULTILINE)
    if len(statements) < 2:
        raise RuntimeError("docs/postgres.md prints no rights of the role semaphored")
    text = "\n".join(statements) + "\n"
    text = text.replace(" TO semaphored;", f" TO {role};")
    text = text.replace(" DATABASE production ", f" DATABASE {database} ")
    return text.replace(" SCHEMA semaphored ", f" SCHEMA {schema} ").replace(
        "semaphored.", f"{schema}.")


class PostgresServer:
    """A server under `folder`, which outlives this object until stop(). As a context manager it is
    started, stopped and removed."""

    def __init__(self, folder, settings="", suite=None):
        """`settings`: lines of postgresql.conf, used when the data folder is made. `suite`: of
        Debian, whose version is run; None: what SEMAPHORED_TEST_SUITE names, or this machine's."""
        self.folder = os.path.abspath(folder)
        self._suite = os.environ.get("SEMAPHORED_TEST_SUITE") if suite is None else suite
        self.log_path = os.path.join(self.folder, "server.log")
        self._settings = settings
        self._known_path = os.path.join(self.folder, "server.json")
        self._known = None  # Port and passwords.
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
    def data(self):
        return os.path.realpath(os.path.join(self.folder, "data"))

    def url(self, schema=None, port=None, password=None, role=ROLE, database=ROLE):
        """As the role that is no superuser; `port` of a proxy, for example."""
        password = quote(password or self._known["password"], safe="")
        options = f"?schema={schema}" if schema else ""
        return f"postgres://{role}:{password}@127.0.0.1:{port or self.port}/{database}{options}"

    # ---- Start and stop ----

    def start(self):
        """Starts it unless it runs, and waits until it answers. Keeps its port."""
        self._load()
        if self.pid() is None:
            self._initialise()
            self._launch()
        self._wait_ready()
        if self._suite:
            print(f"found: postgres {self.version()}", flush=True)
        self._write("url", self.url())
        self._write("url.daemon", self.url(role=DAEMON))
        self._write("rights.sql", printed_rights("{schema}", DAEMON, ROLE))
        return self

    def stop(self, mode="fast"):
        pid = self.pid()
        if pid is not None:
            self.resume()
            os.kill(pid, STOP_SIGNALS[mode])
            self._wait(lambda: not is_running(pid), f"process {pid} ends")
        if self._process is not None:
            self._process.wait(BOUND_S)
            self._process = None

    def kill(self):
        """As kill -9, of all of its processes at once."""
        pid = self.pid()
        self.pause()
        processes = [pid, *children(pid)]
        for process in processes:
            os.kill(process, signal.SIGKILL)
        self._wait(lambda: not any(is_running(process) for process in processes), "its processes end")
        if self._process is not None:
            self._process.wait(BOUND_S)
            self._process = None

    def restart(self, mode="fast"):
        self.stop(mode)
        self.start()

    def remove(self):
        """Stops it and removes its data; the log stays if the folder is wanted by others."""
        self.stop("immediate")
        shutil.rmtree(self.data, ignore_errors=True)
        for name in ("data", "server.json", "url", "url.daemon", "rights.sql"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.folder, name))

    def pause(self):
        """Stops the clock for all of its processes."""
        pid = self.pid()
        pause(pid)  # First, so that no child is added.
        for child in children(pid):
            with contextlib.suppress(ProcessLookupError):
                pause(child)

    def resume(self):
        pid = self.pid()
        for process in [*children(pid), pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)

    def pid(self):
        """Of the process that all others are children of; None if it does not run."""
        line = self._pid_file()[:1]
        if not line or not is_running(int(line[0])):
            return None
        with contextlib.suppress(OSError):
            with open(f"/proc/{line[0]}/cmdline", "rb") as file:
                if self.data.encode() in file.read().split(b"\0"):
                    return int(line[0])
        return None  # The file is stale, and its number somebody else's by now.

    def version(self):
        """As the server says it: "15.16 (Debian …)". By psql: starting a server needs no psycopg2."""
        self._load()
        return self._run("psql", "-At", "-h", "127.0.0.1", "-p", str(self.port), "-U", ADMIN,
                         "-c", "SHOW server_version", "postgres",
                         environment={"PGPASSWORD": self._known["admin_password"]}).strip()

    # ---- SQL ----

    def connect(self, **options):
        """A psycopg2 connection, in autocommit, as the role that is no superuser."""
        return self._connect(**{"user": ROLE, "password": self._known["password"], **options})

    def execute(self, statement, parameters=None, database=ROLE):
        """Runs a statement as the superuser; returns its rows."""
        with contextlib.closing(self._connect(
                user=ADMIN, password=self._known["admin_password"],
                dbname=database)) as connection:
            with connection.cursor() as cursor:
                cursor.execute(statement, parameters)
                return cursor.fetchall() if cursor.description else []

    def _connect(self, **options):
        import psycopg2  # Here, since starting a server does not need it.
        connection = psycopg2.connect(**{"host": "127.0.0.1", "port": self.port, "dbname": ROLE,
                                         "connect_timeout": 10, **options})
        connection.autocommit = True
        return connection

    # ---- A second server ----

    def make_standby(self, folder, port=None):
        """A copy that follows this one's log, on the port of one that has ended, for example; to be started by
        start()."""
        standby = PostgresServer(folder, suite=self._suite)
        standby.make_folder()
        self._run("pg_basebackup", "-D", standby.data, "--checkpoint=fast", "--write-recovery-conf",
                  "-h", "127.0.0.1", "-p", str(self.port), "-U", ADMIN,
                  environment={"PGPASSWORD": self._known["admin_password"]})
        standby.remember({**self._known, "port": port or free_port()})
        return standby

    def promote(self):
        """Makes a standby a server that can be written to; returns when it is."""
        self._run("pg_ctl", "promote", "-D", self.data, "-w")

    # ---- Inside ----

    def make_folder(self):
        """Makes the folder of the data, empty, owned by whom the server runs as."""
        os.makedirs(self.folder, exist_ok=True)
        shutil.rmtree(self.data, ignore_errors=True)
        place = os.path.join(self.folder, "data")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(place)
        owner = server_owner()
        if owner is None:
            os.mkdir(place, 0o700)
            return
        os.chown(self.folder, *owner)
        # A checkout below root's home cannot be reached by others: then the data lies elsewhere.
        writable = as_server_user(["test", "-w", self.folder])
        if subprocess.run(writable, check=False).returncode == 0:
            os.mkdir(place, 0o700)
        else:
            os.symlink(tempfile.mkdtemp(prefix="semaphored-postgres-"), place)
        os.chown(self.data, *owner)

    def remember(self, known):
        self._known = known
        with open(self._known_path, "w", encoding="ascii", opener=secret) as file:
            json.dump(known, file)

    def _write(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="ascii", opener=secret) as file:
            file.write(text)

    def _load(self):
        with contextlib.suppress(FileNotFoundError, ValueError):
            with open(self._known_path, encoding="ascii") as file:
                self._known = json.load(file)

    def _initialise(self):
        if self._known is not None and os.path.exists(os.path.join(self.data, "PG_VERSION")):
            return
        self.make_folder()
        known = {"port": free_port(), "password": secrets.token_hex(16),
                 "admin_password": secrets.token_hex(16)}
        with tempfile.NamedTemporaryFile("w", encoding="ascii") as file:
            file.write(known["admin_password"])
            file.flush()
            if server_owner() is not None:
                os.chown(file.name, *server_owner())
            # --no-sync: only of what initdb itself writes.
            self._run("initdb", "-D", self.data, "-U", ADMIN, f"--pwfile={file.name}", "--no-sync",
                      "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C")
        with open(os.path.join(self.data, "postgresql.conf"), "a", encoding="ascii") as file:
            file.write(CONFIGURATION + self._settings)
        self._run("postgres", "--single", "-D", self.data, "postgres",
                  text=f"CREATE ROLE {ROLE} LOGIN PASSWORD '{known['password']}'\n"
                       f"CREATE ROLE {DAEMON} LOGIN PASSWORD '{known['password']}'\n"
                       f"CREATE DATABASE {ROLE} OWNER {ROLE}\n")
        self.remember(known)  # Last: without it the next start begins anew.

    def _launch(self):
        with open(self.log_path, "ab") as log:
            # In a session of its own: what is sent to a terminal's processes is not for it.
            self._process = subprocess.Popen(  # pylint: disable=consider-using-with
                self._command("postgres", "-D", self.data, "-p", str(self.port)),
                cwd=self.data, env=self._environment(), stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True)

    def _wait_ready(self):
        def ready():
            if self._process is not None and self._process.poll() is not None:
                raise RuntimeError(f"postgres ended with {self._process.returncode}, see "
                                   f"{self.log_path}:\n{self._log_end()}")
            state = [line.strip() for line in self._pid_file()[7:8]]
            return self.pid() is not None and state in (["ready"], ["standby"])
        self._wait(ready, "postgres accepts connections")

    def _pid_file(self):
        try:
            with open(os.path.join(self.data, "postmaster.pid"), encoding="ascii") as file:
                return file.read().splitlines()
        except FileNotFoundError:
            return []

    def _wait(self, condition, what):
        deadline = time.monotonic() + BOUND_S
        while not condition():
            if self._process is not None:
                self._process.poll()
            if time.monotonic() > deadline:
                raise RuntimeError(f"not within {BOUND_S} s: {what}; {self.log_path} ends with:\n"
                                   f"{self._log_end()}")
            time.sleep(0.02)

    def _log_end(self):
        with contextlib.suppress(FileNotFoundError):
            with open(self.log_path, encoding="utf-8", errors="replace") as file:
                return file.read()[-2000:]
        return ""

    def _environment(self):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        return {**kept, "LC_ALL": "C"}

    def _command(self, program, *arguments):
        root = root_of(self._suite)
        return in_root(root, as_server_user([os.path.join(binaries(root), program), *arguments]))

    def _run(self, program, *arguments, text=None, environment=None):
        done = subprocess.run(self._command(program, *arguments), cwd="/", input=text,
                              env={**self._environment(), **(environment or {})}, text=True,
                              capture_output=True, timeout=BOUND_S, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{program} ended with {done.returncode}:\n{done.stdout}"
                               f"{done.stderr}")
        return done.stdout


def secret(path, flags):
    """Opens a file that only its owner may read."""
    return os.open(path, flags, 0o600)


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("start", "stop"):
        sys.exit(__doc__)
    server = PostgresServer(sys.argv[2])
    if sys.argv[1] == "start":
        server.start()
        print(f"postgres {server.pid()} on port {server.port}")
    else:
        server.remove()


if __name__ == "__main__":
    main()
