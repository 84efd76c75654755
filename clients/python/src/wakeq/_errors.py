"""What can go wrong between the client and the service. Invalid arguments are a ValueError."""

from __future__ import annotations

from typing import Any, Mapping

# "Later", the service's own or a proxy's.
TEMPORARY = (429, 502, 503, 504)
TYPE_PREFIX = "urn:wakeq:problem:"


class WakeqError(Exception):
    """A request that did not succeed."""

    is_temporary: bool
    """Whether the same request may succeed later."""


class ApiError(WakeqError):
    """The service answered, and refused the request."""

    def __init__(
        self,
        request: str,
        status: int,
        problem: Mapping[str, Any] | None,
        *,
        retry_after_s: int | None = None,
        request_id: str | None = None,
    ) -> None:
        self.status = status
        self.type: str = problem["type"] if problem else "about:blank"
        """The problem's type, which is stable: `urn:wakeq:problem:not-found`."""
        self.code = self.type.removeprefix(TYPE_PREFIX) if self.type.startswith(TYPE_PREFIX) else None
        """The last part of the type: `not-found`. None if the answer is not wakeq's."""
        self.title: str | None = problem.get("title") if problem else None
        self.detail: str | None = problem.get("detail") if problem else None
        """What is wrong in this case, and what to do."""
        self.request_id: str | None = problem.get("request_id") if problem else request_id
        """Names the request in the service's log."""
        self.retry_after_s = retry_after_s
        """Seconds after which to try again, if the service says so."""
        self.is_temporary = status in TEMPORARY or self.code == "idempotency-in-progress"
        if problem:
            words = f"{self.title}: {self.detail} ({status}, request {self.request_id})"
        else:
            words = f"{status}, not in wakeq's format: is this its URL, and what is in front of it?"
        super().__init__(f"{request}: {words}")


class TransportError(WakeqError):
    """There was no answer, or not all of it. The request may have taken effect."""

    def __init__(self, message: str, *, is_temporary: bool = True) -> None:
        self.is_temporary = is_temporary
        super().__init__(message)
