"""Verifies deliveries to HTTP targets: Standard Webhooks, over the raw bytes of the body.

It never parses a body whose signature it has not checked.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import time
from dataclasses import dataclass
from typing import Any, Iterable, Mapping, Protocol, Sequence

TOLERANCE_S = 300
SECRET_PREFIX = "whsec_"
SECRET_BYTES = range(24, 65)


class Headers(Protocol):
    """The headers of a request, as the standard library and every framework have them."""

    def items(self) -> Iterable[tuple[str, str]]: ...


class SignatureError(Exception):
    """A delivery that is not from wakeq, or is too old: answer it with 401."""


@dataclass(frozen=True)
class Delivery:
    """A verified delivery. The signature covers id, time and value, not the other fields."""

    id: str
    """The event's id, the same in every attempt: ignore one that you have processed."""
    sent_at_s: int
    """When this attempt was signed, in Unix seconds."""
    module: str | None
    name: str | None
    """The handler's name."""
    modifier: str | None
    canvas: str | None
    """The tenant."""
    attempt: int | None
    """From 1."""
    value: Any
    """The event's value."""


def verify(
    headers: Headers,
    body: bytes | bytearray | memoryview,
    secrets: str | Sequence[str],
    now_s: float | None = None,
) -> Delivery:
    """Checks the signature and the time of a delivery.

    `headers` are those of the request, as any framework has them, in any case; `body` are its bytes
    as received; `secrets` is `whsec_…`, or both during a rotation; `now_s` is in Unix seconds.
    Raises a SignatureError if the delivery is to be refused.
    """
    keys = [_key_of(secret) for secret in ([secrets] if isinstance(secrets, str) else secrets)]
    if not keys:
        raise ValueError("verify needs a secret")
    if not isinstance(body, (bytes, bytearray, memoryview)):
        raise TypeError("verify needs the body's bytes as received, before they are parsed or decoded")
    lower = _lower(headers)
    id, sent_at, given = (
        _needed(lower, name) for name in ("webhook-id", "webhook-timestamp", "webhook-signature")
    )
    if not re.fullmatch(r"[0-9]{1,12}", sent_at):
        raise SignatureError("webhook-timestamp is not a number of seconds")
    if not abs((time.time() if now_s is None else now_s) - int(sent_at)) <= TOLERANCE_S:
        raise SignatureError("webhook-timestamp is more than five minutes off: a repeat, or a wrong clock")
    signed = f"{id}.{sent_at}.".encode(errors="replace") + bytes(body)
    expected = [_signature(key, signed) for key in keys]
    theirs = [signature.encode(errors="replace") for signature in given.split(" ")]
    if not any(hmac.compare_digest(mine, one) for mine in expected for one in theirs):
        raise SignatureError("no signature matches: another secret, or a body that is not as it was sent")
    return _delivery(id, int(sent_at), lower, bytes(body))


def _delivery(id: str, sent_at_s: int, headers: Mapping[str, str], body: bytes) -> Delivery:
    address = headers.get("ce-type", "").split("/")
    module, name, modifier = address if len(address) == 3 else (None, None, None)
    attempt, source = headers.get("wakeq-attempt"), headers.get("ce-source")
    return Delivery(
        id=id,
        sent_at_s=sent_at_s,
        module=module,
        name=name,
        modifier=modifier,
        canvas=source.rsplit("/", 1)[-1] if source else None,
        attempt=int(attempt) if attempt and attempt.isdecimal() else None,
        value=json.loads(body),
    )


def _key_of(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(SECRET_PREFIX) or len(key) not in SECRET_BYTES:
        # Without the cause, which may show a part of it.
        raise ValueError("a secret is `whsec_` and 24 to 64 bytes in base64") from None
    return key


def _lower(headers: Headers) -> dict[str, str]:
    lower: dict[str, str] = {}
    for name, value in headers.items():
        lower[name.lower()] = f"{lower[name.lower()]}, {value}" if name.lower() in lower else value
    return lower


def _needed(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name)
    if not value:
        raise SignatureError(f"the header {name} is missing")
    return value


def _signature(key: bytes, signed: bytes) -> bytes:
    return b"v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest())
