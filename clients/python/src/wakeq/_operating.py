"""Calls about many events at once, and about what their canvas allows.

These are lists, counts, dead events and their error groups, halted objects, batches, operations,
limits and switches. Lists come as pages, or item by item.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterator, Sequence, cast

from . import schema
from ._administering import Administering
from ._requests import fresh_key, given

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._filters import (
        CountFilter,
        DeadFilter,
        EndedCountFilter,
        EndedFilter,
        ErrorGroupFilter,
        EventFilter,
        HaltedFilter,
        Paging,
    )

EVENTS = "/v1/canvases/{canvas}/events"
ENDED = "/v1/canvases/{canvas}/ended-events"
DEAD = "/v1/canvases/{canvas}/dead-events"
BATCHES = "/v1/canvases/{canvas}/batches"
OPERATIONS = "/v1/canvases/{canvas}/operations"
LIMITS = "/v1/canvases/{canvas}/limits"
SWITCHES = "/v1/canvases/{canvas}/switches"
GROUPS = DEAD + "/groups"
HALTED = "/v1/canvases/{canvas}/halted-objects"


class Operating(Administering):
    def events(self, **filter: Unpack[EventFilter]) -> schema.ListEventSummary:
        """A page of events that have not ended, by handler and due time.

        Pass its `next_cursor` as `cursor`, with the same filter, for the next page. It may be short
        or empty although more follow.
        """
        return cast(schema.ListEventSummary, self.request("GET", EVENTS, query=filter))

    def each_event(self, **filter: Unpack[EventFilter]) -> Iterator[schema.EventSummary]:
        """All events that have not ended and match a filter, page by page."""
        return self._each(EVENTS, filter)

    def count_events(self, **filter: Unpack[CountFilter]) -> schema.EventCount:
        """How many events match a filter, of up to 10,000 that are examined after the `cursor`.

        That is the `next_cursor` of the previous count. With the state `dead` alone, dead events
        are counted.
        """
        return cast(schema.EventCount, self.request("GET", EVENTS + "/count", query=filter))

    def set_tags(self, id: str, tags: Sequence[str]) -> schema.TheEvent:
        """Replaces the tags of an event."""
        body = {"tags": list(tags)}
        return cast(schema.TheEvent, self.request("PUT", EVENTS + "/{id}/tags", path={"id": id}, body=body))

    def set_due(
        self, id: str, *, delay_s: float | None = None, delay_until: str | None = None
    ) -> schema.DueEvent:
        """Gives an event that waits another due time, earlier or later: from now, or a moment."""
        body = given({"delay_s": delay_s, "delay_until": delay_until})
        return cast(schema.DueEvent, self.request("PUT", EVENTS + "/{id}/due", path={"id": id}, body=body))

    def ended_events(self, **filter: Unpack[EndedFilter]) -> schema.ListEndedEvent:
        """A page of events that have ended and are kept, the latest first."""
        return cast(schema.ListEndedEvent, self.request("GET", ENDED, query=filter))

    def each_ended_event(self, **filter: Unpack[EndedFilter]) -> Iterator[schema.EndedEvent]:
        """All events that have ended, are kept and match a filter, page by page."""
        return self._each(ENDED, filter)

    def count_ended_events(self, **filter: Unpack[EndedCountFilter]) -> schema.EventCount:
        """How many events that have ended and are kept match a filter.

        It is of as many as a page of `ended_events` examines after the `cursor`, which is the
        `next_cursor` of the previous count.
        """
        return cast(schema.EventCount, self.request("GET", ENDED + "/count", query=filter))

    def dead_events(self, **filter: Unpack[DeadFilter]) -> schema.ListDeadEvent:
        """A page of dead events, the latest first.

        Pass its `next_cursor` as `cursor`, with the same filter, for the next page.
        """
        return cast(schema.ListDeadEvent, self.request("GET", DEAD, query=filter))

    def each_dead_event(self, **filter: Unpack[DeadFilter]) -> Iterator[schema.DeadEvent]:
        """All dead events that match a filter, page by page."""
        return self._each(DEAD, filter)

    def redrive(self, which: schema.BulkRequest) -> schema.Redriven:
        """Emits dead events again, up to 10,000: those of a filter, or `{"all": True}`.

        On `more`, repeat it with the answer's `before`, without `all`.
        """
        return cast(schema.Redriven, self.request("POST", DEAD + "/redrive", body=which))

    def redrive_one(self, id: str) -> schema.TheEvent:
        """Emits one dead event again."""
        return cast(schema.TheEvent, self.request("POST", DEAD + "/{id}/redrive", path={"id": id}))

    def delete_dead(self, which: schema.BulkRequest) -> schema.Deleted:
        """Deletes dead events, up to 10,000: those of a filter, or `{"all": True}`.

        On `more`, repeat it with the answer's `before`, without `all`.
        """
        return cast(schema.Deleted, self.request("POST", DEAD + "/delete", body=which))

    def error_groups(self, **filter: Unpack[ErrorGroupFilter]) -> schema.ErrorGroups:
        """A page of error groups: dead events of a handler that died of the same error."""
        return cast(schema.ErrorGroups, self.request("GET", GROUPS, query=filter))

    def each_error_group(self, **filter: Unpack[ErrorGroupFilter]) -> Iterator[schema.ErrorGroup]:
        """All error groups that match a filter, page by page."""
        return self._each(GROUPS, filter)

    def error_group(self, id: str) -> schema.ErrorGroup:
        """An error group, which is the `error_group` of dead events, and of filters."""
        return cast(schema.ErrorGroup, self.request("GET", GROUPS + "/{error_group}", path={"error_group": id}))

    def know_error(self, id: str, *, note: str | None = None) -> schema.KnownError:
        """Marks an error group as known. Repeated, it replaces the mark."""
        path, body = {"error_group": id}, given({"note": note})
        known = self.request("PUT", GROUPS + "/{error_group}/known", path=path, body=body, repeatable=True)
        return cast(schema.KnownError, known)

    def forget_error(self, id: str) -> None:
        """Removes the mark of an error group."""
        self.request("DELETE", GROUPS + "/{error_group}/known", path={"error_group": id})

    def halted_objects(self, **filter: Unpack[HaltedFilter]) -> schema.ListHaltedLane:
        """A page of objects that are halted by a dead event, the longest halted first.

        Redrive that event, or skip it.
        """
        return cast(schema.ListHaltedLane, self.request("GET", HALTED, query=filter))

    def each_halted_object(self, **filter: Unpack[HaltedFilter]) -> Iterator[schema.HaltedLane]:
        """All halted objects, page by page."""
        return self._each(HALTED, filter)

    def skip_object(self, object: str, name: str, *, module: str = "WORKER") -> schema.Skipped:
        """Resumes an object for a handler without its dead event."""
        path, body = {"object": object}, {"module": module, "name": name}
        answer = self.request("POST", "/v1/canvases/{canvas}/objects/{object}/skip", path=path, body=body)
        return cast(schema.Skipped, answer)

    def open_batch(self, name: str, on_end: schema.NewBatchEnd) -> schema.Batch:
        """Opens a batch, with the event to emit at its end.

        Opening it again with the same event changes nothing. Its members are emitted with its name
        as `batch`.
        """
        body = {"on_end": on_end}
        opened = self.request("POST", BATCHES + "/{batch}", path={"batch": name}, body=body, repeatable=True)
        return cast(schema.Batch, opened)

    def close_batch(self, name: str) -> schema.Batch:
        """Closes a batch: no more members come, except from its members.

        Its event is emitted once the last of them has ended.
        """
        closed = self.request("POST", BATCHES + "/{batch}/close", path={"batch": name}, repeatable=True)
        return cast(schema.Batch, closed)

    def batch(self, name: str) -> schema.Batch:
        """A batch, with how many of its members have ended and are left."""
        return cast(schema.Batch, self.request("GET", BATCHES + "/{batch}", path={"batch": name}))

    def batches(self, **page: Unpack[Paging]) -> schema.ListBatch:
        """A page of the batches, by name."""
        return cast(schema.ListBatch, self.request("GET", BATCHES, query=page))

    def each_batch(self, **page: Unpack[Paging]) -> Iterator[schema.Batch]:
        """All batches, page by page."""
        return self._each(BATCHES, page)

    def cancel_batch(self, name: str) -> None:
        """Gives a batch up: its event is never emitted, and its members stay as they are."""
        self.request("DELETE", BATCHES + "/{batch}", path={"batch": name})

    def begin_operation(
        self, operation: schema.NewOperation, *, idempotency_key: str | None = None
    ) -> schema.Operation:
        """Begins an operation on many events.

        It returns at once, and the service carries the operation on: `operation` says how far it
        has come. Attempts after a lost answer begin nothing twice.
        """
        key = idempotency_key or fresh_key()
        begun = self.request("POST", OPERATIONS, body=operation, idempotency_key=key)
        return cast(schema.Operation, begun)

    def preview_operation(self, operation: schema.NewOperation) -> schema.OperationPreview:
        """What an operation would change."""
        preview = self.request("POST", OPERATIONS + "/preview", body=operation, repeatable=True)
        return cast(schema.OperationPreview, preview)

    def operation(self, id: str) -> schema.Operation:
        """An operation, and how far it has come."""
        return cast(schema.Operation, self.request("GET", OPERATIONS + "/{operation}", path={"operation": id}))

    def operations(self, **page: Unpack[Paging]) -> schema.ListOperation:
        """A page of the canvas's operations, the latest first."""
        return cast(schema.ListOperation, self.request("GET", OPERATIONS, query=page))

    def each_operation(self, **page: Unpack[Paging]) -> Iterator[schema.Operation]:
        """All operations of the canvas, page by page."""
        return self._each(OPERATIONS, page)

    def cancel_operation(self, id: str) -> schema.Operation:
        """Cancels an operation. What it has done stays, and the answer says how much that is."""
        answer = self.request("DELETE", OPERATIONS + "/{operation}", path={"operation": id})
        return cast(schema.Operation, answer)

    def set_limit(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        rate: schema.Rate | None = None,
        on_full: schema.OnFull | None = None,
        waiting_max: int | None = None,
    ) -> schema.PutLimitAnswer:
        """Sets a limit of the canvas, and replaces the one of that name.

        It is of all events (`canvas`), of a handler (`handler:MODULE/NAME`), of a key that emits
        name, or of a family of keys.
        """
        body = given(
            {"concurrency": concurrency, "rate": rate, "on_full": on_full, "waiting_max": waiting_max}
        )
        answer = self.request("PUT", LIMITS + "/{limit}", path={"limit": name}, body=body, repeatable=True)
        return cast(schema.PutLimitAnswer, answer)

    def limit(self, name: str) -> schema.Limit:
        """A limit that counts on the canvas, which may be the operator's default."""
        return cast(schema.Limit, self.request("GET", LIMITS + "/{limit}", path={"limit": name}))

    def limits(self, **page: Unpack[Paging]) -> schema.ListLimit:
        """A page of the limits of the canvas, by name."""
        return cast(schema.ListLimit, self.request("GET", LIMITS, query=page))

    def each_limit(self, **page: Unpack[Paging]) -> Iterator[schema.Limit]:
        """All limits of the canvas, page by page."""
        return self._each(LIMITS, page)

    def limit_uses(self, name: str, **page: Unpack[Paging]) -> schema.ListLimitUse:
        """A page of what is in use of a limit, of a family for each of its keys."""
        uses = self.request("GET", LIMITS + "/{limit}/uses", path={"limit": name}, query=page)
        return cast(schema.ListLimitUse, uses)

    def each_limit_use(self, name: str, **page: Unpack[Paging]) -> Iterator[schema.LimitUse]:
        """All that is in use of a limit, page by page."""
        return self._each(LIMITS + "/{limit}/uses", page, {"limit": name})

    def remove_limit(self, name: str) -> None:
        """Removes a limit of the canvas, and wakes what waited for it."""
        self.request("DELETE", LIMITS + "/{limit}", path={"limit": name})

    def switches(self) -> list[schema.Rule]:
        """What stops the whole canvas: its pause and its block, and the block of everything."""
        return list(self._each(SWITCHES, {}))
