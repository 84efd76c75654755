"""A thin client of the HTTP API: one method per call, and `request` for all the others.

Here are the calls about one event or one handler. Those about many events and limits are in
`_operating`, about blocks, workers and queues in `_administering`, and about crons in `_scheduling`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterator, Sequence, cast

from . import schema
from ._operating import Operating
from ._requests import fresh_key, given

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._filters import TargetFilter

EVENTS = "/v1/canvases/{canvas}/events"
HANDLERS = "/v1/canvases/{canvas}/handlers"
HANDLER = HANDLERS + "/{module}/{name}"
TARGETS = "/v1/canvases/{canvas}/targets"
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

    def run_now(self, id: str) -> schema.TheEvent:
        """Makes an event that waits due at once; for a running one the code is `not-waiting`.

        A pause or a block still holds it.
        """
        return cast(schema.TheEvent, self.request("POST", EVENTS + "/{id}/run-now", path={"id": id}))

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

    def handler(self, name: str, *, module: str = "WORKER") -> schema.Handler:
        """A handler: its counts, the rules that stop it, and its targets.

        One without any has counts of 0.
        """
        return cast(schema.Handler, self.request("GET", HANDLER, path={"module": module, "name": name}))

    def attempts(
        self,
        name: str,
        *,
        module: str | None = None,
        modifier: str | None = None,
        limit: int | None = None,
    ) -> schema.LastAttempts:
        """The last attempts at the events of a handler, the latest first, up to 100.

        They are those that failed, were too early, or ended an event that is kept. Those of one
        event are in `explain`.
        """
        query = {"module": module, "name": name, "modifier": modifier, "limit": limit}
        return cast(schema.LastAttempts, self.request("GET", "/v1/canvases/{canvas}/attempts", query=query))

    def depth(self, name: str | None = None, *, module: str | None = None) -> schema.Depth:
        """How many events of the canvas, or of a handler, are due and free to run.

        At most 10,000 are counted.
        """
        query = {"module": module, "name": name}
        return cast(schema.Depth, self.request("GET", "/v1/canvases/{canvas}/depth", query=query))

    def purge(
        self, name: str, *, module: str = "WORKER", **which: Unpack[schema.PurgeRequest]
    ) -> schema.Purged:
        """Deletes the events of a handler that are not running, up to 10,000.

        On `more`, repeat it with the answer's `before`. With `dry_run` they are only counted.
        """
        path = {"module": module, "name": name}
        return cast(schema.Purged, self.request("POST", HANDLER + "/purge", path=path, body=which))

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
        paused = self.request("PUT", HANDLER + "/pause", path=path, body=body, repeatable=True)
        return cast(schema.Stopped, paused)

    def unpause(self, name: str, *, module: str = "WORKER") -> schema.Lifted:
        """Lifts the pause, and wakes what waited."""
        path = {"module": module, "name": name}
        return cast(schema.Lifted, self.request("DELETE", HANDLER + "/pause", path=path))

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
        answer = self.request("PUT", HANDLER + "/pull", path=path, body=policy, repeatable=True)
        return cast(schema.PutPulledAnswer, answer)

    def unpull(self, name: str, *, module: str = "WORKER") -> None:
        """Gives the events of a pulled handler to workers and targets again."""
        self.request("DELETE", HANDLER + "/pull", path={"module": module, "name": name})

    def set_target(
        self, name: str, *, module: str = "WORKER", **target: Unpack[schema.PutTarget]
    ) -> schema.PutAnswer:
        """Registers an HTTP target, which gets the events of a handler, or replaces it.

        It has a `url`, and perhaps a `policy`, a `secret`, `headers` and an `audience`. A secret
        that was generated is in this answer only: if that is lost, ask for another with
        `rotate_secret`.
        """
        path = {"module": module, "name": name}
        return cast(schema.PutAnswer, self.request("PUT", HANDLER, path=path, body=target))

    def targets(self, **filter: Unpack[TargetFilter]) -> schema.ListTarget:
        """A page of the targets of the canvas, or of a handler."""
        return cast(schema.ListTarget, self.request("GET", TARGETS, query=filter))

    def each_target(self, **filter: Unpack[TargetFilter]) -> Iterator[schema.Target]:
        """All targets of the canvas, or of a handler, page by page."""
        return self._each(TARGETS, filter)

    def remove_target(self, name: str, *, module: str = "WORKER") -> None:
        """Deletes the target of a handler, whose events then wait."""
        self.request("DELETE", HANDLER, path={"module": module, "name": name})

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
            answer = self.request("GET", HANDLER + "/statistics", path=path, query=query)
        return cast(schema.Statistics, answer)
