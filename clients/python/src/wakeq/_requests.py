"""Requests with a key, repeated where that is safe.

It must never show the key, send it anywhere but to the service, or emit twice because an answer was
lost.
"""

from __future__ import annotations

import json
import random
import re
import time
import uuid
import warnings
from types import TracebackType
from typing import Any, Callable, Iterator, Mapping, TypeVar
from urllib.parse import quote, urlencode

from ._errors import ApiError, WakeqError
from ._transport import Transport

NIL = "00000000-0000-0000-0000-000000000000"
TIMEOUT_S_MAX = 600
RETRIES_MAX = 10
# Longer pauses are the caller's decision.
RETRY_AFTER_S_MAX = 30
FIRST_PAUSE_S = 0.2
# Items that are asked for at a time where all are read.
PAGE = 1000

R = TypeVar("R", bound="Requests")


class Requests:
    """Any request of the API, for one canvas."""

    def __init__(
        self,
        url: str,
        key: str | Callable[[], str],
        *,
        canvas: str | uuid.UUID = NIL,
        timeout_s: float = 35,
        retries: int = 2,
    ) -> None:
        if not 0 < timeout_s <= TIMEOUT_S_MAX:
            raise ValueError(f"timeout_s is over 0, and at most {TIMEOUT_S_MAX}")
        if not 0 <= retries <= RETRIES_MAX:
            raise ValueError(f"retries is 0 to {RETRIES_MAX}")
        try:
            self._canvas = str(uuid.UUID(str(canvas)))
        except ValueError:
            raise ValueError("a canvas is a UUID") from None
        self._key = key if callable(key) else _Key(key)
        self._retries = retries
        self._timeout_s = timeout_s
        self._transport = Transport(url, timeout_s)
        if self.is_in_the_clear:
            words = f"the key travels in the clear to {self._transport.origin}: prefer https://"
            warnings.warn(words, stacklevel=2)

    @property
    def timeout_s(self) -> float:
        """How long each attempt waits for its answer."""
        return self._timeout_s

    @property
    def is_in_the_clear(self) -> bool:
        """Whether the key travels in the clear to another machine."""
        return self._transport.is_in_the_clear

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._transport.origin!r}, canvas={self._canvas!r})"

    def __enter__(self: R) -> R:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes idle connections. Later requests make new ones."""
        self._transport.close()

    def request(
        self,
        method: str,
        path_template: str,
        *,
        path: Mapping[str, str] = {},
        query: Mapping[str, object] = {},
        body: object = None,
        idempotency_key: str | None = None,
        repeatable: bool | None = None,
    ) -> Any:
        """Any request of the API, by method and path as in the OpenAPI document.

        `{canvas}` is the client's, unless `path` has another. Annotate what it returns with a type of
        `wakeq.schema`. `repeatable` is whether a request whose answer was lost may be sent again; by
        default a GET, or with an idempotency key. Not for `/v1/listen`, whose answer does not end.
        """
        if idempotency_key is not None and not re.fullmatch(r"[\x21-\x7e]{1,255}", idempotency_key):
            raise ValueError("an idempotency key is 1 to 255 visible ASCII characters")
        target = _target(path_template, {"canvas": self._canvas, **path}, query)
        sent = None if body is None else json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        if repeatable is None:
            repeatable = method == "GET" or idempotency_key is not None
        attempt = 0
        while True:
            try:
                return self._attempt(method, path_template, target, sent, idempotency_key)
            except WakeqError as error:
                pause_s = _pause_s(error, repeatable, attempt) if attempt < self._retries else None
                if pause_s is None:
                    raise
            time.sleep(pause_s)
            attempt += 1

    def _each(
        self, path_template: str, query: Mapping[str, object], path: Mapping[str, str] = {}
    ) -> Iterator[Any]:
        """The items of all pages."""
        sent: dict[str, object] = {"limit": PAGE, **given(query)}
        while True:
            page = self.request("GET", path_template, path=path, query=sent)
            yield from page["items"]
            if not page.get("next_cursor"):
                return
            sent["cursor"] = page["next_cursor"]

    def _attempt(
        self, method: str, path_template: str, target: str, sent: bytes | None, idempotency_key: str | None
    ) -> Any:
        headers = {"authorization": f"Bearer {_checked(self._key())}", "accept": "application/json"}
        if sent is not None:
            headers["content-type"] = "application/json"
        if idempotency_key is not None:
            headers["idempotency-key"] = idempotency_key
        status, answered, answer = self._transport.exchange(method, target, headers, sent)
        is_success = 200 <= status < 300
        if is_success and not answer:
            return None
        is_problem = (answered.get("content-type") or "").startswith("application/problem+json")
        try:
            parsed = json.loads(answer) if is_success or is_problem else None
        except ValueError:
            is_success, parsed = False, None
        if is_success:
            return parsed
        retry_after = answered.get("retry-after") or ""
        raise ApiError(
            f"{method} {path_template}",
            status,
            parsed if isinstance(parsed, dict) and isinstance(parsed.get("type"), str) else None,
            retry_after_s=int(retry_after) if re.fullmatch(r"[0-9]{1,9}", retry_after) else None,
            request_id=answered.get("x-request-id"),
        )


class _Key:
    """A key that does not show itself."""

    __slots__ = ("_key",)

    def __init__(self, key: str) -> None:
        self._key = _checked(key)

    def __call__(self) -> str:
        return self._key

    def __repr__(self) -> str:
        return "<key>"


def _checked(key: str) -> str:
    if not isinstance(key, str) or not re.fullmatch(r"[\x21-\x7e]{1,8192}", key):
        raise ValueError("a key is `wakeq_…` or a Google ID token, without blanks")
    return key


def fresh_key() -> str:
    return str(uuid.uuid4())


def given(values: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}


def _target(template: str, path: Mapping[str, str], query: Mapping[str, object]) -> str:
    """Not with "." or ".." in place of a value, which would lead to another path."""

    def segment(match: re.Match[str]) -> str:
        value = path.get(match[1])
        if not isinstance(value, str) or value in ("", ".", ".."):
            raise ValueError(f"the path needs {match[1]}, as a string that is not empty")
        return quote(value, safe="")

    target = re.sub(r"\{(\w+)\}", segment, template)
    parameters = _parameters(query)
    return f"{target}?{urlencode(parameters)}" if parameters else target


def _parameters(query: Mapping[str, object]) -> dict[str, object]:
    """Several values are one parameter, and none are no parameter."""
    wanted = {name: value for name, value in given(query).items() if value not in ([], ())}
    return {name: _parameter(value) for name, value in wanted.items()}


def _parameter(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, (list, tuple)) else value


def _pause_s(error: WakeqError, is_repeatable: bool, attempt: int) -> float | None:
    """How long to wait before a request is sent again; None if it is not."""
    if not error.is_temporary:
        return None
    # A 429 was refused before it had an effect; all else may have had one.
    if not is_repeatable and not (isinstance(error, ApiError) and error.status == 429):
        return None
    asked_s = error.retry_after_s or 0 if isinstance(error, ApiError) else 0
    pause_s = max(asked_s, FIRST_PAUSE_S * 2**attempt * (1 + random.random()))
    return None if pause_s > RETRY_AFTER_S_MAX else pause_s
