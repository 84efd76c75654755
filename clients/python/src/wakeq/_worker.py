"""A loop that leases events of pulled handlers and runs functions for them.

It must never run an event whose lease it knows to be over, nor say that one has ended which has
not.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import random
import re
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Mapping, NamedTuple, Sequence, TypeAlias

from . import schema
from ._client import Client
from ._errors import ApiError, WakeqError

LEASES = "/v1/canvases/{canvas}/handlers/{module}/{name}/leases"
CONCURRENCY_MAX = 1000
LEASED_MAX = 100
WAIT_S_MAX = 20.0
# How much earlier than the client's timeout a request stops to wait.
TO_ANSWER_S = 5
FIRST_PAUSE_S = 0.5
PAUSE_S_MAX = 30.0
# How long functions may take to stop once the grace is over.
CUT_OFF_S = 5.0
# How long the service leaves a lease at most whose event was cancelled.
CANCEL_GRACE_S = 10.0
EXTENDERS_MAX = 8
# What the service stores of an error, and its longest delay.
ERROR_MAX = 4000
RETRY_S_MAX = 30 * 24 * 3600
# The longest result, in bytes.
RESULT_MAX = 65_536
# What a worker may be called, and how much of the host's name is kept: the end, where the names of
# pods differ.
NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
HOST_MAX = 100
# What the service says of a lease that does not stand.
LOST = (404, 409, 410)

log = logging.getLogger("wakeq")


class DeadError(Exception):
    """Raised by a function whose event no retry can help: it is among the dead events at once."""


class RetryError(Exception):
    """Raised by a function whose event is to be tried again, after this long at least."""

    def __init__(self, message: str, retry_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_s = retry_s


class Context:
    """What a function knows besides its event."""

    def __init__(self, lease: _Lease) -> None:
        self._lease = lease

    @property
    def cancelled(self) -> threading.Event:
        """Set when the function has to stop; `reason` says why."""
        return self._lease.stopped

    @property
    def reason(self) -> str | None:
        """`lease-lost`, `cancelled` or `shutdown`, once the function has to stop."""
        return self._lease.reason

    @property
    def lease_until(self) -> str:
        """When the lease ends. It is extended by itself, so this moves."""
        return self._lease.until


Function: TypeAlias = "Callable[[schema.LeasedEvent, Context], Any]"


class Worker:
    """Runs functions for the events of pulled handlers.

    The key of the client needs the scopes `operate`, `read` and `values` for these handlers.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stop = threading.Event()
        self._changed = threading.Condition()

    def run(
        self,
        functions: Mapping[str, Function],
        *,
        concurrency: int = 10,
        lease_s: float = 60,
        grace_s: float = 25,
        name: str | None = None,
        signals: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGINT),
    ) -> None:
        """Runs until SIGTERM or SIGINT, or `stop()`.

        Then it leases nothing more, releases what has not begun, and returns when all functions have
        ended or the grace is over. Functions run in threads, and coroutine functions each in a loop
        of its own.

        A function that returns completes its event. What it returns is the result if the event is
        kept: JSON of up to 64 KiB. One that raises has it tried again with the handler's delays;
        `RetryError` asks for a longer one, and `DeadError` lets it die.

        `functions` are by `name`, or by `MODULE/name`. The `name` of the worker is shown with the
        events that it has leased, in their history, and among the programs. Default: the host's
        name and the number of the process.
        """
        _within("concurrency", concurrency, 1, CONCURRENCY_MAX)
        _within("lease_s", lease_s, 1, 3600)
        _within("grace_s", grace_s, 0, 3600)
        served = [_served(handler, function) for handler, function in functions.items()]
        if not served:
            raise ValueError("a worker needs a function")
        worker = _worker_name(name)
        self._stop.clear()
        run = _Run(self._client, self._stop, self._changed, worker, concurrency, lease_s)
        before = self._catch(signals)
        try:
            run.until_stopped(served)
            run.finish(grace_s)
        finally:
            for number, former in before:
                signal.signal(number, former)

    def stop(self) -> None:
        """Stops as SIGTERM does, from any thread; `run` returns when that is done."""
        self._stop.set()

    def _catch(self, signals: Sequence[signal.Signals]) -> list[tuple[signal.Signals, Any]]:
        """Only the main thread may receive signals."""
        if threading.current_thread() is not threading.main_thread():
            return []

        def caught(*_: object) -> None:
            # Not here: the main thread may be interrupted while it has the lock of the event.
            threading.Thread(target=self._stop.set, daemon=True).start()

        return [(number, signal.signal(number, caught)) for number in signals]


class _Served(NamedTuple):
    module: str
    name: str
    function: Function


class _Run:
    def __init__(
        self,
        client: Client,
        stop: threading.Event,
        changed: threading.Condition,
        worker: str,
        concurrency: int,
        lease_s: float,
    ) -> None:
        self._client = client
        self._worker = worker
        self._stop = stop
        # Guards what is below, and is notified when a place becomes free.
        self._changed = changed
        self._concurrency = concurrency
        self._leases: set[_Lease] = set()
        self._lease_s = lease_s
        # A lease counts from before its request, so most of it has to be left after the wait.
        self._wait_s = max(0.0, min(WAIT_S_MAX, lease_s / 3, client.timeout_s - TO_ANSWER_S))
        self._functions = ThreadPoolExecutor(concurrency, "wakeq-function")
        self._extenders = ThreadPoolExecutor(min(EXTENDERS_MAX, concurrency), "wakeq-extend")
        self._over = threading.Event()

    def until_stopped(self, served: Sequence[_Served]) -> None:
        threading.Thread(target=self._keep, name="wakeq-leases", daemon=True).start()
        for each in served:
            # A request that waits for events must not keep the program from ending.
            threading.Thread(target=self._serve, args=(each,), name=f"wakeq-{each.name}", daemon=True).start()
        self._stop.wait()

    def finish(self, grace_s: float) -> None:
        """Waits for the functions that run, and cuts them off when the grace is over."""
        if not self._is_idle_within(grace_s):
            with self._changed:
                leases = list(self._leases)
            for lease in leases:
                lease.stop("shutdown")
            if not self._is_idle_within(CUT_OFF_S):
                with self._changed:
                    leases = list(self._leases)
                for lease in leases:
                    # What does not heed its context must not keep the worker from stopping.
                    if not lease.is_over(time.monotonic()):
                        _logged(lease.release)
                    lease.stop("lease-lost")
        self._over.set()
        self._functions.shutdown(wait=False, cancel_futures=True)
        self._extenders.shutdown(wait=False, cancel_futures=True)

    def _is_idle_within(self, limit_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._leases, limit_s)

    def _serve(self, served: _Served) -> None:
        """Leases events of one handler until the worker stops."""
        failures = 0
        while (most := self._free_places()) > 0:
            sent_at = time.monotonic()
            body = {
                "max": min(most, LEASED_MAX),
                "lease_s": self._lease_s,
                "wait_s": self._wait_s,
                "worker": self._worker,
            }
            path = {"module": served.module, "name": served.name}
            try:
                events = self._client.request("POST", LEASES, path=path, body=body)["events"]
            except Exception as error:
                # Whatever it is, such as a key that can't be read now: the next request may succeed.
                log.warning("events could not be leased: %s", _said(error))
                failures += 1
                self._stop.wait(_backoff_s(failures, error))
                continue
            failures = 0
            for leased in events:
                self._begin(served, leased, sent_at)

    def _free_places(self) -> int:
        """Waits until there are some; 0 if the worker stops."""
        with self._changed:
            while not self._stop.is_set():
                free = self._concurrency - len(self._leases)
                if free > 0:
                    return free
                # The stop notifies nobody: a signal's function must not wait for a lock.
                self._changed.wait(0.5)
        return 0

    def _begin(self, served: _Served, leased: schema.LeasedEvent, sent_at: float) -> None:
        lease = _Lease(self._client, served, leased, self._lease_s, sent_at)
        with self._changed:
            self._leases.add(lease)
        try:
            self._functions.submit(self._work, served, leased, lease)
        except RuntimeError:
            # The worker has stopped while the request waited.
            _logged(lease.release)
            self._end(lease)

    def _end(self, lease: _Lease) -> None:
        with self._changed:
            self._leases.discard(lease)
            self._changed.notify_all()

    def _work(self, served: _Served, leased: schema.LeasedEvent, lease: _Lease) -> None:
        try:
            if self._stop.is_set() or lease.stopped.is_set():
                lease.release()
                return
            try:
                outcome = served.function(leased, Context(lease))
                if inspect.isawaitable(outcome):
                    outcome = asyncio.run(_awaited(outcome))
            except BaseException as error:
                # Also `sys.exit` and the cancelling of a task, which are not for this thread.
                lease.fail(error)
            else:
                lease.complete(outcome)
        except Exception as error:
            log.warning("event %s: %s", leased["id"], _said(error))
        finally:
            self._end(lease)

    def _keep(self) -> None:
        """Extends each lease when a third of it is over."""
        while not self._over.wait(min(self._lease_s / 12, 1)):
            now = time.monotonic()
            with self._changed:
                # Not only where a request says so: all of them may wait for answers.
                over = [lease for lease in self._leases if lease.is_over(now)]
                due = [lease for lease in self._leases if lease.is_due(now)]
            for lease in over:
                lease.stop("lease-lost")
            for lease in due:
                try:
                    self._extenders.submit(lease.extend)
                except RuntimeError:
                    return


class _Lease:
    """The lease of one event."""

    def __init__(
        self, client: Client, served: _Served, leased: schema.LeasedEvent, lease_s: float, sent_at: float
    ) -> None:
        self._client = client
        self._path = {"module": served.module, "name": served.name, "id": leased["id"]}
        self._token = leased["lease"]
        self._lease_s = lease_s
        self._lock = threading.Lock()
        # By this process's clock: when it is over at the latest, and when it is extended.
        self._over_at = sent_at + lease_s
        self._due_at: float | None = sent_at + lease_s / 3
        self.until = leased["lease_until"]
        self.stopped = threading.Event()
        self.reason: str | None = None

    def stop(self, reason: str) -> None:
        """Tells the function to stop. Nothing is said of a lease that is lost."""
        with self._lock:
            if self.reason is None or reason == "lease-lost":
                self.reason = reason
        self.stopped.set()

    def is_due(self, now: float) -> bool:
        """Whether it is time to extend it, which is then for the caller to do."""
        with self._lock:
            if self._due_at is None or now < self._due_at or self.reason == "lease-lost":
                return False
            self._due_at = None
            return True

    def is_over(self, now: float) -> bool:
        return now >= self._over_at

    def extend(self) -> None:
        sent_at = time.monotonic()
        if self.is_over(sent_at):
            self.stop("lease-lost")
            return
        due_at: float | None = sent_at + self._lease_s / 12
        try:
            body = {"lease": self._token, "lease_s": self._lease_s}
            answer = self._client.request("POST", LEASES + "/{id}/extend", path=self._path, body=body)
            until, is_cancelled = answer["lease_until"], answer["cancelled"]
        except Exception as error:
            if _is_lost(error):
                self.stop("lease-lost")
                return
            log.warning("the lease of event %s could not be extended: %s", self._path["id"], _said(error))
        else:
            self.until = until
            if is_cancelled:
                # The service extends it no more: what is left is the grace of the function.
                self._over_at, due_at = min(self._over_at, sent_at + CANCEL_GRACE_S), None
                self.stop("cancelled")
            else:
                self._over_at, due_at = sent_at + self._lease_s, sent_at + self._lease_s / 3
        with self._lock:
            self._due_at = due_at

    def complete(self, returned: object) -> None:
        """With what the function returned as the result of its event."""
        self._say("complete", _result(self._path["id"], returned))

    def release(self) -> None:
        """As if it had not been leased."""
        self._say("release", {})

    def fail(self, error: BaseException) -> None:
        # What a function raises because it was told to stop is not its failure.
        if self.stopped.is_set():
            self.release()
            return
        # A release that the service refuses would leave the event to the end of its lease.
        how: dict[str, object] = {"error": _said(error)}
        if isinstance(error, DeadError):
            how["dead"] = True
        elif isinstance(error, RetryError) and error.retry_s is not None:
            how["retry_s"] = max(0.0, min(RETRY_S_MAX, error.retry_s))
        self._say("release", how)

    def _say(self, verb: str, how: Mapping[str, object]) -> None:
        """Repeats a request while the lease stands, until it is answered."""
        attempt = 1
        while self.reason != "lease-lost":
            try:
                body = {"lease": self._token, **how}
                self._client.request("POST", f"{LEASES}/{{id}}/{verb}", path=self._path, body=body)
                return
            except WakeqError as error:
                # The answer to an earlier attempt was lost: it has taken effect.
                if attempt > 1 and _is_lost(error):
                    return
                wait_s = min(_backoff_s(attempt, error), self._lease_s / 6)
                if not error.is_temporary or time.monotonic() + wait_s >= self._over_at:
                    raise
            time.sleep(wait_s)
            attempt += 1


def _result(event: str, returned: object) -> dict[str, object]:
    """One that can't be stored is reported and left out: the function has done its work."""
    if returned is None:
        return {}
    try:
        size = len(json.dumps(returned, ensure_ascii=False, allow_nan=False).encode())
    except (TypeError, ValueError, RecursionError) as error:
        log.warning("event %s: what its function returned is not kept as its result: %s", event, _said(error))
        return {}
    if size > RESULT_MAX:
        log.warning(
            "event %s: what its function returned is not kept as its result: it has %d bytes as JSON, "
            "the limit is %d",
            event,
            size,
            RESULT_MAX,
        )
        return {}
    return {"result": returned}


async def _awaited(outcome: Any) -> Any:
    return await outcome


def _served(handler: str, function: Function) -> _Served:
    module, _, name = handler.rpartition("/")
    if not name or "/" in module or handler.startswith("/"):
        raise ValueError(f"a handler is `name` or `MODULE/name`, not {handler!r}")
    if not callable(function):
        raise ValueError(f"the handler {handler} needs a function")
    return _Served(module or "WORKER", name, function)


def _worker_name(given: str | None) -> str:
    """The given name, or else the host's and the number of the process: `mailer-x7k2p-31`."""
    if given is None:
        host = re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname())[-HOST_MAX:] or "worker"
        return f"{host}-{os.getpid()}"
    if not NAME.fullmatch(given):
        raise ValueError("name has 1 to 128 of A-Z a-z 0-9 _ . -")
    return given


def _said(error: BaseException) -> str:
    """As much of its message as is stored, without halves of characters."""
    try:
        said = str(error)
    except Exception:
        said = ""
    return (said or type(error).__name__)[:ERROR_MAX].encode(errors="replace").decode()


def _logged(call: Callable[[], None]) -> None:
    try:
        call()
    except Exception as error:
        log.warning("%s", _said(error))


def _is_lost(error: Exception) -> bool:
    return isinstance(error, ApiError) and error.status in LOST


def _backoff_s(failures: int, error: Exception) -> float:
    """How long to wait: with jitter, so that the workers of a fleet spread."""
    backoff_s: float = min(PAUSE_S_MAX, FIRST_PAUSE_S * 2 ** min(failures - 1, 10))
    asked_s = error.retry_after_s or 0 if isinstance(error, ApiError) else 0
    return max(asked_s, backoff_s * (0.5 + random.random() / 2))


def _within(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ValueError(f"{name} is {least} to {most}")
