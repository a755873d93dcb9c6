"""Errors in the words of the package: the daemon speaks of fields of its protocol, and in ms."""

import re

_OPTIONS = {
    "ttl_ms": "ttl", "wait_ms": "wait", "wait_forever": "wait", "grace_ms": "grace",
    "delay_ms": "delay", "limit_mismatch": "adopt_limit", "LIMIT_MISMATCH_ADOPT": "adopt_limit",
    "attempts_unbounded": "max_attempts",
}
# In messages of the protocol, which the caller builds itself, fields are called as they are there.
_MESSAGES = ("settings", "back_off")
_WORD = re.compile(r"[A-Za-z0-9_.]*[A-Za-z0-9_]")
_FIELD = re.compile(r"([A-Za-z0-9_.\[\]]+)(: .*)", re.DOTALL)


def option_of(field: str) -> str:
    """Of a field's path, such as "open.ttl_ms"; the path itself if the package calls it so."""
    *path, last = field.split(".")
    return field if path[-1:] and path[-1] in _MESSAGES else _OPTIONS.get(last, field)


def with_options(text: str) -> str:
    """Options in the place of fields."""
    return _WORD.sub(lambda word: option_of(word[0]), text)


def in_options(message: str, semaphore: str) -> str:
    """The message of an error about this semaphore, whose name stays as it is."""
    before = f"{semaphore}: " if semaphore and message.startswith(f"{semaphore}: ") else ""
    message = message[len(before):]
    found = _FIELD.fullmatch(message)
    if found is None or option_of(found[1]) == found[1]:
        return before + with_options(message)
    rest = with_options(found[2])
    if found[1].endswith("_ms"):
        rest = re.sub(r"[0-9]+", lambda ms: f"{int(ms[0]) / 1000:g} s", rest)
    return before + option_of(found[1]) + rest
