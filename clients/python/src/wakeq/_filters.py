"""What lists and counts can be of: arguments of the client's calls, none of which is required.

Several tags or states may be given as a list: an event has all of those tags, and one of those
states. Times are texts such as `2026-01-31T08:00:00Z`.
"""

from __future__ import annotations

from typing import Literal, Sequence, TypedDict

from . import schema


class Paging(TypedDict, total=False):
    """Which page of a list."""

    limit: int | None
    """Most items of a page, 1 to 1,000. Default 100, or 1,000 where all are read."""
    cursor: str | None
    """The `next_cursor` of the previous page."""


class _OfEvents(TypedDict, total=False):
    module: str | None
    """The handler's module. Default `WORKER` if `name` is given."""
    name: str | None
    """The handler's name."""
    modifier: str | None
    """The handler's modifier."""
    tag: str | Sequence[str] | None
    """With this tag, or all of these."""
    object: str | None
    """On this object."""
    batch: str | None
    """Members of this batch."""
    emitted_since: str | None
    emitted_before: str | None
    error_text: str | None
    """Whose last error contains this text."""
    value_text: str | None
    """Whose value contains this text, as it was emitted."""
    value: str | None
    """Whose value has a scalar at a path: `$.customer.id = "7"`."""


class _OfWaiting(_OfEvents, total=False):
    state: schema.SelectedState | Sequence[schema.SelectedState] | None
    due_since: str | None
    due_before: str | None
    waits_for: str | None
    """Waiting for this limit, by the name under which it counts: `customer:7`."""


class EventFilter(_OfWaiting, Paging, total=False):
    """Which events that have not ended."""

    worker: str | None
    """That this worker has claimed."""


class CountFilter(_OfWaiting, total=False):
    """Which events to count. With the state `dead` alone, dead events."""

    died_since: str | None
    died_before: str | None
    error_group: str | None
    """Of this error group; only for dead events."""
    cursor: str | None
    """The `next_cursor` of the previous count."""


class ErrorGroupFilter(Paging, total=False):
    """Which error groups, and in what order."""

    module: str | None
    """The handler's module; requires `name`. Default `WORKER`."""
    name: str | None
    """The handler's name."""
    known: bool | None
    """Those that are marked as known, or those that are not. Default: both."""
    order: Literal["count", "last_died"] | None
    """First those with the most events, or those of which one died last. Default `count`."""


class HaltedFilter(Paging, total=False):
    """Which halted objects."""

    object: str | None
    """Only this object, by each handler for which it is halted."""


class TargetFilter(Paging, total=False):
    """Which targets."""

    module: str | None
    """The handler's module; requires `name`. Default `WORKER`."""
    name: str | None
    """The handler's name."""


class DeadFilter(_OfEvents, Paging, total=False):
    """Which dead events."""

    since: str | None
    """Died at or after this time."""
    before: str | None
    """Died before this time."""
    error_group: str | None


class _OfEnded(_OfEvents, total=False):
    outcome: Literal["completed", "failed", "cancelled"] | None
    since: str | None
    """Ended at or after this time."""
    before: str | None
    """Ended before this time."""
    result_text: str | None
    """Whose result contains this text, as it was recorded."""
    result: str | None
    """Whose result has a scalar at a path: `$.receipt = 9`."""


class EndedFilter(_OfEnded, Paging, total=False):
    """Which events that have ended, and are kept."""


class EndedCountFilter(_OfEnded, total=False):
    """Which events that have ended, and are kept, to count."""

    cursor: str | None
    """The `next_cursor` of the previous count."""
