"""A thin client of the HTTP API: one method per call, and `request` for all the others.

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
from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence, cast
from urllib.parse import quote, urlencode

from . import schema
from ._errors import ApiError, TransportError, WakeqError
from ._transport import Transport

if TYPE_CHECKING:
    from typing_extensions import Unpack

NIL = "00000000-0000-0000-0000-000000000000"
TIMEOUT_S_MAX = 600
RETRIES_MAX = 10
# Longer pauses are the caller's decision.
RETRY_AFTER_S_MAX = 30
FIRST_PAUSE_S = 0.2

EVENTS = "/v1/canvases/{canvas}/events"
HANDLERS = "/v1/canvases/{canvas}/handlers"
CANVAS_PAUSE = "/v1/canvases/{canvas}/pause"
DEAD = "/v1/canvases/{canvas}/dead-events"


class Client:
    """The API of a canvas, for any number of threads.

    `key` is a key (`wakeq_…`), or a function that returns one or a Google ID token, asked for each
    attempt. `canvas` is the tenant. `timeout_s` is how long to wait for the service, which itself ends
    requests after 30 s. `retries` is how often a request is sent again, if that is safe. The methods raise an
    ApiError or a TransportError, both of them a WakeqError.
    """

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
        return f"Client({self._transport.origin!r}, canvas={self._canvas!r})"

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes idle connections. Later requests make new ones."""
        self._transport.close()

    def emit(self, event: schema.NewEvent, *, idempotency_key: str | None = None) -> schema.Emitted:
        """Emits an event; returns once it is committed.

        Attempts after a lost answer emit nothing twice. Within 24 hours so do calls with the same
        `idempotency_key`.
        """
        answer = self.request("POST", EVENTS, body=event, idempotency_key=idempotency_key or _fresh_key())
        return cast(schema.Emitted, answer)

    def emit_all(
        self, events: Sequence[schema.NewEvent], *, idempotency_key: str | None = None
    ) -> list[schema.Emitted]:
        """Emits up to 1,000 events, all or none; answers in their order."""
        body, key = {"events": list(events)}, idempotency_key or _fresh_key()
        answer = self.request("POST", EVENTS + ":batch", body=body, idempotency_key=key)
        return cast(schema.EmittedBatch, answer)["events"]

    def event(self, id: str) -> schema.EventDetail:
        """An event with its value. One that has ended and is not kept is an ApiError `not-found`."""
        answer = self.request("GET", EVENTS + "/{id}", path={"id": id}, query={"view": "full"})
        return cast(schema.EventDetail, answer)

    def explain(self, id: str) -> schema.EventDetail:
        """Why an event is not running, and what happens next; without its value."""
        return cast(schema.EventDetail, self.request("GET", EVENTS + "/{id}", path={"id": id}))

    def cancel(self, id: str, *, running: bool = False) -> schema.CancelledEvent:
        """Deletes an event that is not running; for a running one the code is `not-waiting`.

        With `running`, the handler of a running event is told to stop, and `next` of the answer says
        what happens then.
        """
        query = {"running": "true"} if running else {}
        answer = self.request("POST", EVENTS + "/{id}/cancel", path={"id": id}, query=query)
        return cast(schema.CancelledEvent, answer)

    def checkpoint(self, id: str) -> schema.Checkpoint:
        """What the attempts of an event have left to the next one; without that the code is `not-found`."""
        return cast(schema.Checkpoint, self.request("GET", EVENTS + "/{id}/checkpoint", path={"id": id}))

    def store_checkpoint(self, id: str, claim: str, value: object) -> None:
        """Leaves a value of at most 64 KiB of JSON to the next attempt of an event.

        `claim` is the header `wakeq-claim` of a delivery, or the `lease`. If it does not
        stand any more, the code is `lease-over`, and the attempt has to stop.
        """
        body = {"claim": claim, "value": value}
        self.request("PUT", EVENTS + "/{id}/checkpoint", path={"id": id}, body=body, repeatable=True)

    def handlers(self) -> list[schema.Handler]:
        """All handlers of the canvas, their counts, rules and targets: a request for each thousand."""
        found: list[schema.Handler] = []
        query: dict[str, Any] = {"limit": 1000}
        while True:
            page = self.request("GET", HANDLERS, query=query)
            found.extend(page["items"])
            if not page.get("next_cursor"):
                return found
            query["cursor"] = page["next_cursor"]

    def pause(
        self,
        name: str,
        *,
        module: str = "WORKER",
        reason: str | None = None,
        for_s: float | None = None,
        until: str | None = None,
    ) -> schema.Stopped:
        """Pauses a handler on this canvas: afterwards no worker claims an event of it."""
        path = {"module": module, "name": name}
        body = _given({"reason": reason, "for_s": for_s, "until": until})
        paused = self.request("PUT", HANDLERS + "/{module}/{name}/pause", path=path, body=body, repeatable=True)
        return cast(schema.Stopped, paused)

    def unpause(self, name: str, *, module: str = "WORKER") -> schema.Lifted:
        """Lifts the pause, and wakes what waited."""
        path = {"module": module, "name": name}
        return cast(schema.Lifted, self.request("DELETE", HANDLERS + "/{module}/{name}/pause", path=path))

    def pause_canvas(
        self,
        *,
        reason: str | None = None,
        for_s: float | None = None,
        until: str | None = None,
    ) -> schema.Stopped:
        """Pauses the whole canvas: afterwards no worker claims an event of it.

        Emits are accepted, and their events wait.
        """
        body = _given({"reason": reason, "for_s": for_s, "until": until})
        return cast(schema.Stopped, self.request("PUT", CANVAS_PAUSE, body=body, repeatable=True))

    def unpause_canvas(self) -> schema.Lifted:
        """Lifts the pause of the whole canvas, and wakes what waited.

        Handlers that are paused themselves stay so.
        """
        return cast(schema.Lifted, self.request("DELETE", CANVAS_PAUSE))

    def pull(self, name: str, *, module: str = "WORKER", **policy: Unpack[schema.Pull]) -> schema.PutPulledAnswer:
        """Lets a `Worker` lease the events of a handler.

        No other worker and no target gets them from then on. Repeated, it replaces the policy:
        `retries`, `delay_s`, `factor`, `delay_max_s` and `on_death`.
        """
        path = {"module": module, "name": name}
        answer = self.request("PUT", HANDLERS + "/{module}/{name}/pull", path=path, body=policy, repeatable=True)
        return cast(schema.PutPulledAnswer, answer)

    def unpull(self, name: str, *, module: str = "WORKER") -> None:
        """Gives the events of a pulled handler to workers and targets again."""
        self.request("DELETE", HANDLERS + "/{module}/{name}/pull", path={"module": module, "name": name})

    def statistics(
        self,
        name: str | None = None,
        *,
        module: str = "WORKER",
        from_: str | None = None,
        to: str | None = None,
        step_s: int | None = None,
    ) -> schema.Statistics:
        """What happened to the events of a handler, or without a name of the canvas, in columns.

        By default that is the last day by the minute.
        """
        query = {"from": from_, "to": to, "step_s": step_s}
        if name is None:
            answer = self.request("GET", "/v1/canvases/{canvas}/statistics", query=query)
        else:
            path = {"module": module, "name": name}
            answer = self.request("GET", HANDLERS + "/{module}/{name}/statistics", path=path, query=query)
        return cast(schema.Statistics, answer)

    def dead_events(
        self,
        *,
        module: str | None = None,
        name: str | None = None,
        since: str | None = None,
        before: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> schema.ListDeadEvent:
        """A page of dead events, oldest first.

        Pass its `next_cursor` as `cursor`, with the same filter, for the next page.
        """
        query = {"module": module, "name": name, "since": since, "before": before}
        answer = self.request("GET", DEAD, query={**query, "limit": limit, "cursor": cursor})
        return cast(schema.ListDeadEvent, answer)

    def redrive(self, which: schema.BulkRequest) -> schema.Redriven:
        """Emits dead events again, up to 10,000: those of a filter, or `{"all": True}`.

        On `more`, repeat it with the answer's `before`, without `all`.
        """
        return cast(schema.Redriven, self.request("POST", DEAD + "/redrive", body=which))

    def redrive_one(self, id: str) -> schema.TheEvent:
        """Emits one dead event again."""
        return cast(schema.TheEvent, self.request("POST", DEAD + "/{id}/redrive", path={"id": id}))

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


def _fresh_key() -> str:
    return str(uuid.uuid4())


def _given(values: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}


def _target(template: str, path: Mapping[str, str], query: Mapping[str, object]) -> str:
    """Not with "." or ".." in place of a value, which would lead to another path."""

    def segment(match: re.Match[str]) -> str:
        value = path.get(match[1])
        if not isinstance(value, str) or value in ("", ".", ".."):
            raise ValueError(f"the path needs {match[1]}, as a string that is not empty")
        return quote(value, safe="")

    target = re.sub(r"\{(\w+)\}", segment, template)
    given = _given(query)
    return f"{target}?{urlencode(given)}" if given else target


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
