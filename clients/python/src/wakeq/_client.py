"""A thin client of the HTTP API: one method per call, and `request` for all the others.

The calls about many events, limits and workers are in `_operating`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Sequence, cast

from . import schema
from ._operating import Operating
from ._requests import fresh_key, given

if TYPE_CHECKING:
    from typing_extensions import Unpack

EVENTS = "/v1/canvases/{canvas}/events"
HANDLERS = "/v1/canvases/{canvas}/handlers"
CANVAS_PAUSE = "/v1/canvases/{canvas}/pause"


class Client(Operating):
    """The API of a canvas, for any number of threads.

    `key` is a key (`wakeq_…`), or a function that returns one or a Google ID token, asked for each
    attempt. `canvas` is the tenant. `timeout_s` is how long to wait for the service, which itself ends
    requests after 30 s. `retries` is how often a request is sent again, if that is safe. The methods raise an
    ApiError or a TransportError, both of them a WakeqError.
    """

    def emit(self, event: schema.NewEvent, *, idempotency_key: str | None = None) -> schema.Emitted:
        """Emits an event; returns once it is committed.

        Attempts after a lost answer emit nothing twice. Within 24 hours so do calls with the same
        `idempotency_key`.
        """
        answer = self.request("POST", EVENTS, body=event, idempotency_key=idempotency_key or fresh_key())
        return cast(schema.Emitted, answer)

    def emit_all(
        self, events: Sequence[schema.NewEvent], *, idempotency_key: str | None = None
    ) -> list[schema.Emitted]:
        """Emits up to 1,000 events, all or none; answers in their order."""
        body, key = {"events": list(events)}, idempotency_key or fresh_key()
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
        return list(self._each(HANDLERS, {}))

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
        body = given({"reason": reason, "for_s": for_s, "until": until})
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
        body = given({"reason": reason, "for_s": for_s, "until": until})
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
