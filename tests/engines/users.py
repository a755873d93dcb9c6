"""Servers that refuse root: as root, their programs are run as the user that their package made.

By setpriv, which becomes what it is to run. The arguments of subprocess for this make Python fork
(otherwise it does not), and before a fork gRPC, which the process tests use, waits until its
threads are idle: on a busy machine for ever.
"""

import os
import pwd


def owner_of(user):
    """(uid, gid) to whom the server's files are to belong; None: to whoever runs this."""
    if os.geteuid() != 0:
        return None
    entry = pwd.getpwnam(user)
    return entry.pw_uid, entry.pw_gid


def run_as(user, command):
    """The command by which root runs `command` as the user; anybody else runs it as it is."""
    owner = owner_of(user)
    if owner is None:
        return list(command)
    return ["setpriv", f"--reuid={owner[0]}", f"--regid={owner[1]}", "--clear-groups", "--",
            *command]
