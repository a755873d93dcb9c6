"""How a connection is secured, and who asks over it."""

from __future__ import annotations

import ipaddress
import logging
import os
import threading
import uuid
from dataclasses import dataclass
from typing import Any, Callable, List, Optional, Sequence, Tuple

import grpc

from .errors import invalid

_LOG = logging.getLogger("semaphored")
Metadata = Tuple[Tuple[str, str], ...]
# Takes what logging.Logger.warning takes.
Warn = Callable[..., None]


class _WatchedFile:
    """A file that is read again when it has changed. When it is empty, or cannot be read any more,
    what was read last stays, and the file is read again: it may be about to be replaced."""

    def __init__(self, option: str, path: str) -> None:
        self._option = option
        self._path = path
        self._lock = threading.Lock()
        self._stamp: Optional[Tuple[int, int, int]] = None
        self._content = b""
        try:
            self._read()
        except OSError as error:
            raise invalid(f"{option}: {path} cannot be read: {error.strerror}") from error

    def _read(self) -> None:
        status = os.stat(self._path)
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        if stamp != self._stamp:
            with open(self._path, "rb") as file:
                content = file.read()
            if content.strip():
                self._content = content
                self._stamp = stamp

    def content(self, warn: Warn = _LOG.warning) -> bytes:
        failure: Optional[OSError] = None
        with self._lock:
            try:
                self._read()
            except OSError as error:
                failure = error
            content = self._content
        if failure is not None:  # A handler of the log may block: not with the lock held.
            warn("%s cannot be read again: %s", self._option, failure.strerror)
        return content


@dataclass(frozen=True)
class Security:
    """The options of Client, same names."""

    tls: bool = False
    ca_file: Optional[str] = None
    cert_file: Optional[str] = None
    key_file: Optional[str] = None
    server_name: Optional[str] = None
    token: Optional[str] = None
    token_file: Optional[str] = None


class Credentials:
    """Any thread may call it."""

    def __init__(self, security: Security, endpoints: Sequence[str]) -> None:
        if (security.cert_file is None) != (security.key_file is None):
            raise invalid("cert_file and key_file: give both or neither")
        if security.token is not None and security.token_file is not None:
            raise invalid("token and token_file: give one of them")
        self._tls = bool(security.tls or security.ca_file or security.cert_file
                         or security.server_name)
        self._server_name = security.server_name
        self._ca = _watched("ca_file", security.ca_file)
        self._cert = _watched("cert_file", security.cert_file)
        self._key = _watched("key_file", security.key_file)
        self._token_file = _watched("token_file", security.token_file)
        self._token = _checked_token("token", security.token)
        if self._token_file is not None:
            token = self._token_file.content().decode("latin-1").strip()
            _checked_token("token_file", token or None)
        has_token = self._token is not None or self._token_file is not None
        if has_token and not self._tls:
            _refuse_in_the_clear(endpoints)

    def metadata(self, warn: Warn = _LOG.warning) -> Metadata:
        """Of every call."""
        token = self._token
        if self._token_file is not None:
            token = self._token_file.content(warn).decode("latin-1").strip() or None
        return (("authorization", f"Bearer {token}"),) if token is not None else ()

    def stamp(self, warn: Warn = _LOG.warning) -> Tuple[Optional[bytes], ...]:
        """Another value than before: a channel that stands was made of older files."""
        return tuple(None if file is None else file.content(warn)
                     for file in (self._ca, self._cert, self._key))

    def channel(self, endpoint: str, options: Sequence[Tuple[str, Any]] = (),
                warn: Warn = _LOG.warning) -> Any:
        """A channel that shares its connection with no other one."""
        all_options: List[Tuple[str, Any]] = [
            # Otherwise gRPC would hand out the connection that was found broken, or its own pause
            # after it.
            ("grpc.use_local_subchannel_pool", 1),
            ("semaphored.channel", uuid.uuid4().hex),
            *options]
        if not self._tls:
            return grpc.insecure_channel(endpoint, options=all_options)
        if self._server_name is not None:
            all_options.append(("grpc.ssl_target_name_override", self._server_name))
        ca, cert, key = self.stamp(warn)
        credentials = grpc.ssl_channel_credentials(
            root_certificates=ca, private_key=key, certificate_chain=cert)
        return grpc.secure_channel(endpoint, credentials, options=all_options)


def _watched(option: str, path: Optional[str]) -> Optional[_WatchedFile]:
    return _WatchedFile(option, path) if path is not None else None


def _checked_token(option: str, token: Optional[str]) -> Optional[str]:
    """Never shows the token itself."""
    if token is not None and not (token and token.isascii() and token.isprintable()
                                  and " " not in token):
        raise invalid(f"{option}: printable ASCII without spaces, and not empty")
    return token


def _refuse_in_the_clear(endpoints: Sequence[str]) -> None:
    for endpoint in endpoints:
        if not is_local(endpoint):
            raise invalid(f"token: it would go to {endpoint} in the clear; set tls or ca_file")


def is_local(endpoint: str) -> bool:
    """A unix socket, or an address of this machine alone; a name counts only if it is localhost."""
    if endpoint.startswith(("unix:", "unix-abstract:")):
        return True
    for scheme in ("dns:///", "dns:", "ipv4:", "ipv6:"):
        if endpoint.startswith(scheme):
            endpoint = endpoint[len(scheme):]
            break
    host, _, port = endpoint.rpartition(":")
    if not host or not port.isdigit():
        host = endpoint
    host = host.strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
