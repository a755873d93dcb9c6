"""DynamoDB Local, Amazon's own stand-in for the service, for the tests: on a port of its own.

As a program:  dynamodb.py fetch           brings its package into the cache, unless it is there
               dynamodb.py start FOLDER    starts one if none runs there; FOLDER/url says how to
                                           reach it
               dynamodb.py stop FOLDER     stops it and removes its data
As a class: DynamoServer. Processes are known by their ids, never by a name.

The package is found by npm in its registry, whichever that is. The cache is the folder that
SEMAPHORED_CACHE names, or semaphored/ in the user's own.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request

from ports import free_port
from server_process import BOUND_S, ServerProcess

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


class DynamoServer(ServerProcess):
    """A DynamoDB Local under `folder`. All regions and keys see the same tables.

    It listens at every address of the machine: it has no setting for that."""

    def __init__(self, folder, on_disk=False):
        """`on_disk`: its tables are there again when it was stopped and started."""
        super().__init__(folder)
        self.on_disk = on_disk

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
        self._write_url(self.url())
        return self

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

    def _launch(self):
        program = shutil.which("java")
        if program is None:
            raise RuntimeError("no Java is installed: deploy/install.sh --test")
        where = emulator()
        place = ["-dbPath", self.data] if self.on_disk else ["-inMemory"]
        self._spawn([program, "-Xmx512m", self._mark(), f"-Djava.library.path={os.path.join(where, 'DynamoDBLocal_lib')}",
                     "-jar", os.path.join(where, "DynamoDBLocal.jar"), *place, "-sharedDb", "-disableTelemetry", "-port",
                     str(self.port)])

    def is_ready(self):
        self._check_runs("DynamoDB Local")
        try:
            return self.request("ListTables", {})[0] == 200
        except (OSError, ValueError):
            return False


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
