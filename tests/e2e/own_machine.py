"""A machine of a test's own: name spaces of the network and of the mounts, in which the addresses, names and
folders that the documentation uses are the test's. Needs root."""

import os
import subprocess
import sys
import tempfile

_MARK = "SEMAPHORED_TEST_OWN_MACHINE"
NAMES = "127.0.0.1 localhost a old db-locks.example\n127.0.0.2 b new\n"


def _run(*command):
    subprocess.run(command, check=True, timeout=60)


def enter():
    """To be called first: the script begins again inside. Its /etc, /var/lib and / are copies, or empty."""
    if _MARK not in os.environ:
        os.environ[_MARK] = "yes"
        os.environ["SEMAPHORED_BIN_DIR"] = os.path.abspath(
            os.environ.get("SEMAPHORED_BIN_DIR", "build/release/bin"))
        os.environ["SEMAPHORED_STUBS_DIR"] = os.path.abspath(
            os.environ.get("SEMAPHORED_STUBS_DIR", "build/release/python_stubs"))
        os.execvp("unshare", ["unshare", "--net", "--mount", sys.executable, "-B",
                              os.path.abspath(sys.argv[0]), *sys.argv[1:]])
    _run("ip", "link", "set", "lo", "up")
    root = tempfile.mkdtemp(prefix="semaphored-root-")
    _run("mount", "-t", "tmpfs", "tmpfs", root)
    for name in os.listdir("/"):
        path, inside = os.path.join("/", name), os.path.join(root, name)
        if os.path.islink(path):
            os.symlink(os.readlink(path), inside)
        elif name == "etc":
            _run("cp", "-a", "/etc", inside)
        elif os.path.isdir(path):
            os.mkdir(inside)
            _run("mount", "--rbind", path, inside)
    _run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", os.path.join(root, "var", "lib"))
    with open(os.path.join(root, "etc", "hosts"), "w", encoding="utf-8") as hosts:
        hosts.write(NAMES)
    os.chroot(root)
    os.chdir("/")
