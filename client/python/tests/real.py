"""A real daemon for the tests of the package; see tests/e2e/daemon.py."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))

from daemon import BOUND_S, Daemon, free_port, wait_until  # noqa: E402,F401  after the path
