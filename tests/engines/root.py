"""A newer Debian in a root folder of its own, whose engines the tests run beside this machine's.

As a program:  root.py make SUITE      makes the root of a suite in the cache, unless it is there
               root.py remove SUITE    removes it, so that the next one has the suite's present packages
               root.py run SUITE FOLDER COMMAND...    runs the command in another root of the suite, in
                                       FOLDER, which is /mnt there. That root is bare at first, and
                                       keeps what a command installs: in it this tree can be built
As functions: root_of() makes it likewise; in_root() says how a program of it is run.

debootstrap makes it from the mirror that this machine takes its own release from. The cache is the
folder that SEMAPHORED_CACHE names, or semaphored/ in the user's own. Needs root.
"""

import contextlib
import fcntl
import glob
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time

BOUND_S = 60.0
MAKE_BOUND_S = 900.0
PACKAGES = ("postgresql", "rabbitmq-server", "kustomize")
BARE = "-bare"
# In name spaces of its own: nothing that is mounted there, and no process, stays behind, also if
# this one is killed.
ALONE = ("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child")
# Half of the time would go into writing to the disk what can be made again, and documents.
DPKG = """force-unsafe-io
path-exclude=/usr/share/doc/*
path-exclude=/usr/share/locale/*
path-exclude=/usr/share/man/*
"""
APT = 'Acquire::Retries "3";\nAPT::Install-Recommends "false";\n'
# The programs are the root's, and all other folders this machine's: data, ports and the users that
# servers run as are where they are without a root. The name spaces' parent sees none of it.
ENTER = """
set -e
for path in /etc/alternatives /etc/ld.so.cache /usr; do mount --bind "$0$path" "$path"; done
exec "$@"
"""

# As on a machine of its own, but for the network, which is this machine's.
RUN = """
set -e
mount --bind "$1" "$0/mnt"
mount --rbind /dev "$0/dev"
mount -t proc proc "$0/proc"
root=$0
shift
exec env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin \\
  chroot "$root" sh -c 'cd /mnt && exec "$@"' sh "$@"
"""

# Packages of the newer suites are not configured without it.
INSIDE = """
mount -t proc proc "$0/proc"
exec chroot "$0" "$@"
"""


def mirror():
    """Where this machine takes its own release from."""
    ours = platform.freedesktop_os_release()["VERSION_CODENAME"]
    targets = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(COMPONENT)",
         "Created-By: Packages"],
        capture_output=True, text=True, check=True, timeout=BOUND_S).stdout
    for line in targets.splitlines():
        uri, codename, component = line.split()
        if (codename, component) == (ours, "main"):
            return uri
    raise AssertionError(f"this machine has no apt source of {ours} main")


def in_root(root, command):
    """The command that runs `command` with the programs of the root, under the same process id;
    with those of this machine if `root` is None."""
    if root is None:
        return list(command)
    return ["unshare", "--mount", "--", "sh", "-c", ENTER, root, *command]


def root_of(suite):
    """The folder of a root of the suite, made first if it is not there. None: of this machine."""
    if not suite:
        return None
    return _root_in(_folder(suite), suite, PACKAGES)


def run(suite, folder, command):
    """The exit code of the command in the bare root."""
    root = _root_in(_folder(suite) + BARE, suite, ())
    inside = [*ALONE, "--", "sh", "-c", RUN, root, os.path.abspath(folder), *command]
    return subprocess.run(inside, check=False).returncode


def _root_in(folder, suite, packages):
    if os.path.isdir(folder) and not _missing(folder, packages):
        return folder
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with _locked(folder):
        if not os.path.isdir(folder):
            _make(suite, folder, packages)
        elif _missing(folder, packages):
            with open(f"{folder}.log", "ab") as log:
                _install(log, suite, folder, _missing(folder, packages))
    return folder


def _missing(folder, packages):
    """Those that a root of an earlier list does not have."""
    return [name for name in packages
            if not glob.glob(f"{glob.escape(folder)}/var/lib/dpkg/info/{name}.list")]


def remove(suite):
    for folder in (_folder(suite), _folder(suite) + BARE):
        if os.path.isdir(folder):
            with _locked(folder):
                shutil.rmtree(folder)


def _folder(suite):
    if not suite.isalpha():
        raise ValueError(f"{suite!r} is no name of a suite")
    cache = os.environ.get("SEMAPHORED_CACHE")
    if not cache:
        user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        cache = os.path.join(user, "semaphored")
    return os.path.join(os.path.abspath(cache), "roots", suite)


@contextlib.contextmanager
def _locked(folder):
    """One process at a time makes or removes it."""
    with open(f"{folder}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(suite, folder, packages):
    """Makes the root beside `folder`, and renames it when it is complete."""
    if os.geteuid() != 0:
        raise RuntimeError(f"debootstrap needs root: run {sys.argv[0]} as root")
    if shutil.which("debootstrap") is None:
        raise RuntimeError("debootstrap is not installed: deploy/install.sh --test")
    for left in glob.glob(f"{folder}.making-*"):
        shutil.rmtree(left)  # The lock is ours: what made it was ended.
    begun = time.monotonic()
    place = tempfile.mkdtemp(prefix=f"{os.path.basename(folder)}.making-",
                             dir=os.path.dirname(folder))
    try:
        os.chmod(place, 0o755)  # Servers run as users of their own.
        with open(f"{folder}.log", "wb") as log:
            _say(f"{suite}: debootstrap (log: {folder}.log)")
            _write(place, "etc/dpkg/dpkg.cfg.d/root", DPKG)
            _write(place, "etc/apt/apt.conf.d/80root", APT)
            _write(place, "etc/postgresql-common/createcluster.conf",
                   "create_main_cluster = false\n")
            script = f"/usr/share/debootstrap/scripts/{suite}"
            if not os.path.exists(script):  # Of a suite that is newer than this debootstrap.
                script = "/usr/share/debootstrap/scripts/sid"
            _run(log, "debootstrap", "--variant=minbase", suite, place, mirror(), script)
            shutil.copy("/etc/resolv.conf", os.path.join(place, "etc/resolv.conf"))
            _install(log, suite, place, packages)
        os.rename(place, folder)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    _say(f"{suite}: made in {time.monotonic() - begun:.0f} s")


def _install(log, suite, place, packages):
    if packages:
        _say(f"{suite}: installing {', '.join(packages)}")
        _run(log, "chroot", place, "apt-get", "update")
        _run(log, "sh", "-c", INSIDE, place, "env", "DEBIAN_FRONTEND=noninteractive",
             "apt-get", "-y", "install", *packages)
    _run(log, "chroot", place, "sh", "-c", "apt-get clean; rm -rf /var/lib/apt/lists/*")


def _run(log, *command):
    inside = [*ALONE, *command]
    # Twice: both go on with what they have, and a mirror may fail for a moment.
    for _ in range(2):
        done = subprocess.run(inside, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False,
                              timeout=MAKE_BOUND_S)
        if done.returncode == 0:
            return
    with open(log.name, encoding="utf-8", errors="replace") as file:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n"
                           f"{file.read()[-3000:]}")


def _write(place, name, text):
    path = os.path.join(place, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _say(text):
    print(f"root: {text}", flush=True)


def main():
    if len(sys.argv) >= 5 and sys.argv[1] == "run":
        sys.exit(run(sys.argv[2], sys.argv[3], sys.argv[4:]))
    if len(sys.argv) != 3 or sys.argv[1] not in ("make", "remove"):
        sys.exit(__doc__)
    if sys.argv[1] == "make":
        print(root_of(sys.argv[2]))
    else:
        remove(sys.argv[2])


if __name__ == "__main__":
    main()
