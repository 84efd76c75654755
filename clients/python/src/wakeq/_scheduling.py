"""Calls about crons, each of which emits an event for the handler `CRON/name` at its times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterator, cast

from . import schema
from ._requests import Requests, fresh_key, given

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._filters import Paging

CRONS = "/v1/canvases/{canvas}/cron"


class Scheduling(Requests):
    def set_cron(self, name: str, **cron: Unpack[schema.PutCron]) -> schema.Cron:
        """Creates a cron, or replaces the one of that name.

        It has an `expression`, and perhaps a `zone`, a `value`, a `modifier`, and what is done about
        `missed` ticks. One that is paused stays paused.
        """
        answer = self.request("PUT", CRONS + "/{cron}", path={"cron": name}, body=cron, repeatable=True)
        return cast(schema.Cron, answer)

    def cron(self, name: str) -> schema.Cron:
        """A cron, with its next five ticks and what became of its last one."""
        return cast(schema.Cron, self.request("GET", CRONS + "/{cron}", path={"cron": name}))

    def crons(self, **page: Unpack[Paging]) -> schema.ListCron:
        """A page of the crons, by name and without their values."""
        return cast(schema.ListCron, self.request("GET", CRONS, query=page))

    def each_cron(self, **page: Unpack[Paging]) -> Iterator[schema.Cron]:
        """All crons, page by page."""
        return self._each(CRONS, page)

    def run_cron(self, name: str, *, idempotency_key: str | None = None) -> schema.CronRun:
        """Emits an event of a cron now; its ticks stay as they are.

        Attempts after a lost answer emit nothing twice.
        """
        path, key = {"cron": name}, idempotency_key or fresh_key()
        run = self.request("POST", CRONS + "/{cron}/run-now", path=path, idempotency_key=key)
        return cast(schema.CronRun, run)

    def pause_cron(self, name: str, *, reason: str | None = None) -> schema.Cron:
        """Pauses a cron. Ticks that pass meanwhile are not made up for."""
        path, body = {"cron": name}, given({"reason": reason})
        paused = self.request("PUT", CRONS + "/{cron}/pause", path=path, body=body, repeatable=True)
        return cast(schema.Cron, paused)

    def unpause_cron(self, name: str) -> schema.Cron:
        """Resumes a cron, with its next tick."""
        return cast(schema.Cron, self.request("DELETE", CRONS + "/{cron}/pause", path={"cron": name}))

    def remove_cron(self, name: str) -> None:
        """Deletes a cron. Events that are due stay."""
        self.request("DELETE", CRONS + "/{cron}", path={"cron": name})
