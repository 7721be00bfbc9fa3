"""One request, one answer, over a connection that each thread keeps open. Repeats nothing, follows no redirect."""

from __future__ import annotations

import functools
import http.client
import io
import os
import re
import selectors
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from typing import Any, List, Mapping, Optional, Tuple
from urllib.parse import urlsplit

# All that a request line can carry.
_PATH = re.compile("/[!-~]*")


class NotSent(Exception):
    """It never left."""


class Unanswered(Exception):
    """It may have been carried out."""


@dataclass(frozen=True)
class Reply:
    """An answer, whole."""

    status: int
    headers: List[Tuple[str, str]]
    body: bytes

    def header(self, name: str) -> Optional[str]:
        return next((value for known, value in self.headers if known.lower() == name), None)


class Transport:
    def __init__(self, base_url: str, context: Optional[ssl.SSLContext]) -> None:
        parts = urlsplit(base_url)
        known = parts.scheme in ("http", "https") and _PATH.fullmatch(parts.path or "/")
        if not known or not parts.hostname or parts.query or parts.username:
            raise ValueError("%r is not an http or https address" % base_url)
        self._host, self._port = parts.hostname, parts.port
        self._prefix = parts.path.rstrip("/")
        self._context = (context or ssl.create_default_context()) if parts.scheme == "https" else None
        self._kept = threading.local()

    def once(self, method: str, path: str, headers: Mapping[str, str], body: bytes, timeout_s: float) -> Reply:
        if not _PATH.fullmatch(path):
            raise ValueError("%r is not a path" % path)
        until = time.monotonic() + timeout_s
        try:
            connection = self._connection(timeout_s)
        except (OSError, http.client.HTTPException) as error:
            raise NotSent(str(error) or type(error).__name__) from error
        try:
            connection.request(method, self._prefix + path, body or None, headers)
            connection.response_class = functools.partial(_Answer, until=until)  # type: ignore[assignment]
            answer = connection.getresponse()
            reply = Reply(answer.status, answer.getheaders(), answer.read())
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Unanswered(str(error) or type(error).__name__) from error
        except BaseException:
            # Interrupted half-way: the next request must not read this one's answer.
            connection.close()
            raise
        if answer.will_close:
            connection.close()
        return reply

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        kept: Optional[http.client.HTTPConnection] = getattr(self._kept, "connection", None)
        # After a fork the connection is the parent's. One that can be read before anything was asked, the server has closed.
        if kept is not None and kept.sock is not None and self._kept.process == os.getpid():
            if not _readable(kept):
                kept.sock.settimeout(timeout_s)
                return kept
            kept.close()
        if self._context is not None:
            kept = http.client.HTTPSConnection(self._host, self._port, timeout=timeout_s, context=self._context)
        else:
            kept = http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        kept.connect()
        self._kept.connection, self._kept.process = kept, os.getpid()
        return kept

    def close(self) -> None:
        """Closes what the calling thread keeps open."""
        kept = getattr(self._kept, "connection", None)
        if kept is not None:
            kept.close()


class _Answer(http.client.HTTPResponse):
    """An answer that is there as a whole by `until`."""

    def __init__(self, sock: socket.socket, *args: Any, until: float, **named: Any) -> None:
        super().__init__(sock, *args, **named)
        self.fp = io.BufferedReader(_Timely(sock, self.fp.detach(), until))


class _Timely(io.RawIOBase):
    """The bytes that a socket receives until then. The socket's own timeout would begin anew with every byte."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase, until: float) -> None:
        self._sock, self._raw, self._until = sock, raw, until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> Optional[int]:
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(left_s)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _readable(connection: http.client.HTTPConnection) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(connection.sock, selectors.EVENT_READ)
        return bool(selector.select(0))
