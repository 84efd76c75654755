"""One HTTP/1.1 exchange over the standard library, with limits on waiting and on the answer.

It keeps connections for later requests of any thread, follows no redirect, and uses no proxy, so
that the key goes to the service only.
"""

from __future__ import annotations

import http.client
import ipaddress
import selectors
import ssl
import threading
import time
from typing import Mapping
from urllib.parse import SplitResult, urlsplit

from ._errors import TransportError

ANSWER_BYTES_MAX = 64 * 2**20
CHUNK_BYTES = 64 * 2**10
# The service ends idle connections after ten seconds when it is crowded.
IDLE_S_MAX = 8
IDLE_CONNECTIONS_MAX = 32

Answer = tuple[int, "http.client.HTTPMessage", bytes]


class Transport:
    """Sends requests to one service."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self._idle: list[tuple[http.client.HTTPConnection, float]] = []
        self._lock = threading.Lock()
        self._url = _parsed(url)
        self._timeout_s = timeout_s
        self._tls = ssl.create_default_context() if self._url.scheme == "https" else None

    def __del__(self) -> None:
        self.close()

    @property
    def origin(self) -> str:
        return f"{self._url.scheme}://{self._url.netloc}"

    @property
    def is_in_the_clear(self) -> bool:
        return self._url.scheme == "http" and not _is_loopback(self._url.hostname or "")

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection, _ in idle:
            connection.close()

    def exchange(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        """The status, headers and body of the answer; raises a TransportError without one."""
        connection = self._connection()
        try:
            connection.request(method, self._url.path.rstrip("/") + target, body, dict(headers))
            response = connection.getresponse()
            answer = _read(response)
        except TimeoutError as error:
            connection.close()
            raise TransportError(f"{self.origin} did not answer within {self._timeout_s} s") from error
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise TransportError(f"{self.origin} is not reachable, or hung up: {error!r}") from error
        except BaseException:
            connection.close()
            raise
        if response.will_close:
            connection.close()
        else:
            self._keep(connection)
        return response.status, response.headers, answer

    def _connection(self) -> http.client.HTTPConnection:
        while True:
            with self._lock:
                connection, since_s = self._idle.pop() if self._idle else (None, 0.0)
            if connection is None:
                return self._fresh()
            if time.monotonic() - since_s < IDLE_S_MAX and not _has_ended(connection):
                return connection
            connection.close()

    def _fresh(self) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._tls is None:
            return http.client.HTTPConnection(host, port, timeout=self._timeout_s)
        return http.client.HTTPSConnection(host, port, timeout=self._timeout_s, context=self._tls)

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if len(self._idle) < IDLE_CONNECTIONS_MAX:
                return self._idle.append((connection, time.monotonic()))
        connection.close()


def _read(response: http.client.HTTPResponse) -> bytes:
    answer = bytearray()
    while part := response.read(CHUNK_BYTES):
        answer += part
        if len(answer) > ANSWER_BYTES_MAX:
            raise TransportError("the answer is over 64 MiB: ask for less", is_temporary=False)
    # The standard library does not complain about an answer that is cut short here.
    if response.length:
        raise http.client.IncompleteRead(bytes(answer), response.length)
    return bytes(answer)


def _has_ended(connection: http.client.HTTPConnection) -> bool:
    """An idle connection has something to read only if the service ended it."""
    with selectors.DefaultSelector() as selector:
        selector.register(connection.sock, selectors.EVENT_READ)
        return bool(selector.select(0))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _parsed(url: str) -> SplitResult:
    try:
        parsed = urlsplit(url)
        is_url = parsed.scheme in ("http", "https") and bool(parsed.hostname) and parsed.port != 0
    except ValueError:
        is_url = False
    if not is_url or parsed.query or parsed.fragment or not url.isascii() or " " in url:
        raise ValueError("a service's URL looks like https://queue.example, or http://127.0.0.1:8080")
    if "@" in parsed.netloc:
        raise ValueError("a service's URL has no user or password: pass a key")
    return parsed
