"""Calls of those who run a deployment.

These are about blocks, worker processes, programs, queues, and the depth of all canvases. Most of
them need a key with the scope `admin`, or of every canvas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterator, cast

from . import schema
from ._requests import given
from ._scheduling import Scheduling

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._filters import Paging

HANDLER_BLOCK = "/v1/admin/canvases/{canvas}/handlers/{module}/{name}/block"
CANVAS_BLOCK = "/v1/admin/canvases/{canvas}/block"
BLOCK_OF_ALL = "/v1/admin/block"
WORKERS = "/v1/admin/workers"
PROGRAMS = "/v1/canvases/{canvas}/programs"
QUEUES = "/v1/admin/queues"


class Administering(Scheduling):
    def block(
        self,
        name: str,
        *,
        module: str = "WORKER",
        reason: str | None = None,
        for_s: float | None = None,
        until: str | None = None,
    ) -> schema.Stopped:
        """Blocks a handler on this canvas: afterwards no worker claims an event of it.

        `unpause` does not lift it. The key needs the scope `admin`.
        """
        path = {"module": module, "name": name}
        body = given({"reason": reason, "for_s": for_s, "until": until})
        return cast(schema.Stopped, self.request("PUT", HANDLER_BLOCK, path=path, body=body, repeatable=True))

    def unblock(self, name: str, *, module: str = "WORKER") -> schema.Lifted:
        """Lifts the block of a handler, and wakes what waited."""
        return cast(schema.Lifted, self.request("DELETE", HANDLER_BLOCK, path={"module": module, "name": name}))

    def block_canvas(
        self,
        *,
        reason: str | None = None,
        for_s: float | None = None,
        until: str | None = None,
    ) -> schema.Stopped:
        """Blocks the whole canvas, for keys with the scope `admin`: `switches` shows it."""
        body = given({"reason": reason, "for_s": for_s, "until": until})
        return cast(schema.Stopped, self.request("PUT", CANVAS_BLOCK, body=body, repeatable=True))

    def unblock_canvas(self) -> schema.Lifted:
        """Lifts the block of the whole canvas, and wakes what waited.

        Handlers that are stopped themselves stay so.
        """
        return cast(schema.Lifted, self.request("DELETE", CANVAS_BLOCK))

    def block_all(
        self,
        *,
        reason: str | None = None,
        for_s: float | None = None,
        until: str | None = None,
    ) -> schema.Stopped:
        """Blocks every canvas and every queue, for keys with the scope `admin` on every canvas."""
        body = given({"reason": reason, "for_s": for_s, "until": until})
        return cast(schema.Stopped, self.request("PUT", BLOCK_OF_ALL, body=body, repeatable=True))

    def unblock_all(self) -> schema.Lifted:
        """Lifts the block of everything, and wakes what waited on any canvas."""
        return cast(schema.Lifted, self.request("DELETE", BLOCK_OF_ALL))

    def workers(self, **page: Unpack[Paging]) -> schema.ListWorkerSummary:
        """A page of the worker processes of all canvases, by name, for keys of every canvas."""
        return cast(schema.ListWorkerSummary, self.request("GET", WORKERS, query=page))

    def each_worker(self, **page: Unpack[Paging]) -> Iterator[schema.WorkerSummary]:
        """All worker processes, page by page."""
        return self._each(WORKERS, page)

    def worker(self, name: str, *, instance: str | None = None) -> schema.Worker:
        """A worker process, with its handlers and what it ran when it was last seen.

        Of several with the name, it is the one that was seen last, or that `instance`.
        """
        path, query = {"worker": name}, {"instance": instance}
        return cast(schema.Worker, self.request("GET", WORKERS + "/{worker}", path=path, query=query))

    def programs(self, **page: Unpack[Paging]) -> schema.ListProgram:
        """A page of the programs that lease events of the canvas, by the names that they give."""
        return cast(schema.ListProgram, self.request("GET", PROGRAMS, query=page))

    def each_program(self, **page: Unpack[Paging]) -> Iterator[schema.Program]:
        """All programs that lease events of the canvas, page by page."""
        return self._each(PROGRAMS, page)

    def queues(self, **page: Unpack[Paging]) -> schema.ListQueue:
        """A page of the registered queues, by name, for keys of every canvas."""
        return cast(schema.ListQueue, self.request("GET", QUEUES, query=page))

    def each_queue(self, **page: Unpack[Paging]) -> Iterator[schema.Queue]:
        """All registered queues, page by page."""
        return self._each(QUEUES, page)

    def queue_depth(self, name: str) -> schema.QueueDepth:
        """How many copies of a queue are due and free to run, up to 10,000.

        The key has to be of every canvas.
        """
        return cast(schema.QueueDepth, self.request("GET", QUEUES + "/{queue}/depth", path={"queue": name}))

    def total_depth(self, name: str | None = None, *, module: str | None = None) -> schema.Depth:
        """How many events of all canvases, or of the handlers with a name, are due and free to run.

        About 20,000 are counted. The key has to be of every canvas.
        """
        query = {"module": module, "name": name}
        return cast(schema.Depth, self.request("GET", "/v1/admin/depth", query=query))
