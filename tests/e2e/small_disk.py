"""A disk that can be filled, and emptied again."""

import contextlib
import os
import subprocess
import tempfile


class SmallDisk:
    """A tmpfs of some MiB. Mounting needs root; without it the test fails and says so."""

    def __init__(self, size="32m"):
        self.folder = tempfile.mkdtemp(prefix="semaphored-e2e-disk-")
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", self.folder],
            capture_output=True, text=True, check=False)
        if mounted.returncode != 0:
            os.rmdir(self.folder)
            raise AssertionError("this mounts a small tmpfs, which needs root "
                                 "(CAP_SYS_ADMIN): " + mounted.stderr.strip())
        self.filler = os.path.join(self.folder, "filler")

    def fill(self):
        with open(self.filler, "ab", buffering=0) as file:
            for size in (1 << 20, 4096):
                with contextlib.suppress(OSError):
                    while file.write(bytes(size)) == size:
                        pass

    def make_room(self):
        os.unlink(self.filler)

    def remount(self, options):
        subprocess.run(["mount", "-o", f"remount,{options}", self.folder], check=True)

    def close(self):
        subprocess.run(["umount", "-l", self.folder], check=False)
        os.rmdir(self.folder)
