"""Runs a program of the tests on an engine that tests/engines has started, and prints the version that it found.

on_engine.py ENGINE FOLDER VERSION COMMAND...    ENGINE: postgres or rabbitmq, which runs in FOLDER; refused if it is
                                                 older than VERSION, so that a test proves what its name says
"""

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "engines"))

from postgres import PostgresServer  # noqa: E402  the folder has to be on the path first
from rabbitmq import RabbitServer  # noqa: E402

SERVERS = {"postgres": PostgresServer, "rabbitmq": RabbitServer}


def numbers(version):
    return [int(number) for number in re.match(r"[\d.]*\d", version).group().split(".")]


def main():
    if len(sys.argv) < 5 or sys.argv[1] not in SERVERS:
        sys.exit(__doc__)
    engine, folder, least, *command = sys.argv[1:]
    found = SERVERS[engine](folder).version()
    print(f"found: {engine} {found}", flush=True)
    if numbers(found) < numbers(least):
        sys.exit(f"on_engine.py: {engine} {least} or later is needed")
    url_file = os.path.join(os.path.abspath(folder), "url")
    os.environ[f"SEMAPHORED_TEST_{engine.upper()}_URL_FILE"] = url_file
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
