"""What client/node is built on, Connect's client, and Kubernetes' schemas, by npm, from its registry, whichever that is.

As a program:  node_packages.py fetch   brings the packages into the cache, unless they are there
As a module:   folder(source)           brings those of one of the three, and names the folder, which has node_modules/
               npm()                    the command line of npm that works from the cache alone

The versions and their checksums are those of the source's package-lock.json. The cache is the folder
that SEMAPHORED_CACHE names, or semaphored/ in the user's own.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile

FETCH_BOUND_S = 600.0
HERE = os.path.dirname(os.path.abspath(__file__))
CLIENT = os.path.abspath(os.path.join(HERE, "..", "..", "client", "node"))
CONNECT = os.path.join(HERE, "connect")
KUBERNETES = os.path.abspath(os.path.join(HERE, "..", "kubernetes"))
NAMES = {CLIENT: "node-client", CONNECT: "connect", KUBERNETES: "kubernetes"}


def cache_folder(source=CLIENT):
    folder = os.environ.get("SEMAPHORED_CACHE")
    if not folder:
        user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        folder = os.path.join(user, "semaphored")
    with open(os.path.join(source, "package-lock.json"), "rb") as file:
        version = hashlib.sha256(file.read()).hexdigest()[:16]
    return os.path.join(os.path.abspath(folder), f"{NAMES[source]}-{version}")


def npm(*arguments, offline=True):
    """`offline`: with nothing but what folder() has brought."""
    return ["npm", *arguments, "--cache", os.path.join(cache_folder(), "npm"),
            "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error",
            *(["--offline"] if offline else [])]


def folder(source=CLIENT):
    """The folder with node_modules/, brought into the cache first if it is not there."""
    target = cache_folder(source)
    modules = os.path.join(target, "node_modules")
    if os.path.isdir(modules):
        return target
    os.makedirs(target, exist_ok=True)
    with open(f"{target}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.isdir(modules):
            # Complete, or not there.
            with tempfile.TemporaryDirectory(dir=target) as place:
                _fetch(source, place)
                os.rename(os.path.join(place, "node_modules"), modules)
    return target


def _fetch(source, place):
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            raise RuntimeError(f"{tool} is not installed: deploy/install.sh --test")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(os.path.join(source, name), place)
    _run(npm("ci", offline=False), place)
    if source != CLIENT:
        return
    # Once more as a user gets them, by their ranges: npm asks for more then, and shall find it.
    user = os.path.join(place, "user")
    os.makedirs(user)
    with open(os.path.join(user, "package.json"), "w", encoding="ascii") as file:
        file.write("{}")
    with open(os.path.join(place, "package.json"), encoding="utf-8") as file:
        needed = json.load(file)["dependencies"]
    _run(npm("install", *[f"{name}@{version}" for name, version in needed.items()], offline=False),
         user)


def _run(command, place):
    done = subprocess.run(command, cwd=place, capture_output=True, text=True,
                          timeout=FETCH_BOUND_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command[:2]} ended with {done.returncode}:\n{done.stderr[-2000:]}")


if __name__ == "__main__":
    if sys.argv[1:] != ["fetch"]:
        sys.exit(__doc__)
    for each in NAMES:
        print(folder(each))
