"""The worker's loop, against a small service of this file's own: what it leases, extends, completes
and releases, and how it stops. The last test is against a real one."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
import unittest
from typing import Any, Callable, NamedTuple

from wakeq import Client, Context, DeadError, RetryError, Worker

from .service import Request, client, fresh_name, needs_service, serving, until

TOKEN = "0" * 40
NOW = "2026-01-01T00:00:00Z"


class Told(NamedTuple):
    handler: str
    id: str
    verb: str
    body: Any


class Answer(NamedTuple):
    status: int
    json: Any = None


class Stub:
    """A service with events to lease, which notes what it is told of them."""

    def __init__(
        self,
        test: unittest.TestCase,
        values: list[Any],
        answering: Callable[[Told, int], Answer | None] | None = None,
        held: Callable[[Told], object] = lambda told: None,
    ) -> None:
        self.waiting = [{"id": f"event-{index}", "value": value} for index, value in enumerate(values)]
        self.told: list[Told] = []
        self._lock = threading.Lock()
        self._answering = answering
        self._held = held
        self._ended = threading.Event()
        self.url = serving(test, self._answer)
        test.addCleanup(self._ended.set)
        wakeq = Client(self.url, "wakeq_stub", retries=0)
        test.addCleanup(wakeq.close)
        self.worker = Worker(wakeq)

    def about(self, verb: str) -> list[Told]:
        with self._lock:
            return [told for told in self.told if told.verb == verb]

    def _answer(self, request: Request) -> None:
        parts = [*request.path.split("/"), "", "lease"]
        leases = parts.index("leases")
        module, name = parts[leases - 2], parts[leases - 1]
        id, verb = (parts[leases + 1], parts[leases + 2]) if parts[leases + 1] else ("", "lease")
        told = Told(f"{module}/{name}", id, verb, json.loads(request.body()))
        with self._lock:
            before = len(self.told)
            self.told.append(told)
            answer = self._answering(told, before) if self._answering else None
            answer = answer or self._usual(told)
        self._held(told)
        if answer.json == {"events": []}:
            # A long poll: without events the answer takes until the test ends.
            self._ended.wait()
        kind = "application/json" if answer.status < 400 else "application/problem+json"
        body = b"" if answer.json is None else json.dumps(answer.json).encode()
        try:
            request.answer(answer.status, body, content_type=kind)
        except ConnectionError:
            # The program has ended while its request waited.
            pass

    def _usual(self, told: Told) -> Answer:
        if told.verb == "complete":
            return Answer(204)
        if told.verb == "extend":
            return Answer(200, {"lease_until": NOW, "cancelled": False})
        if told.verb == "release":
            return Answer(200, {"died": False, "retry_s": 0})
        most = told.body["max"]
        events, self.waiting = self.waiting[:most], self.waiting[most:]
        module, name = told.handler.split("/")
        rest = {"lease": TOKEN, "lease_until": NOW, "attempt": 1, "module": module, "name": name}
        return Answer(200, {"events": [{**event, **rest, "modifier": "_"} for event in events]})


def problem(status: int) -> Answer:
    details = {"type": "urn:wakeq:problem:x", "title": "t", "status": status, "detail": "d", "request_id": "r"}
    return Answer(status, details)


class Loop(unittest.TestCase):
    def test_what_a_function_returns_completes_its_event(self) -> None:
        stub = Stub(self, [1, 2, 3])
        seen: list[Any] = []

        def greet(event: Any, context: Context) -> None:
            self.assertTrue(not context.cancelled.is_set() and context.lease_until == NOW)
            seen.append(event["value"])
            if len(seen) == 3:
                stub.worker.stop()

        stub.worker.run({"greet": greet}, concurrency=3, signals=())
        self.assertEqual(sorted(seen), [1, 2, 3])
        completed = stub.about("complete")
        self.assertEqual(sorted(told.id for told in completed), ["event-0", "event-1", "event-2"])
        self.assertTrue(all(told.body == {"lease": TOKEN} for told in completed))
        worker = stub.told[0].body["worker"]
        self.assertRegex(worker, rf"^[A-Za-z0-9_.-]+-{os.getpid()}$", "the host and the process")
        body = {"max": 3, "lease_s": 60, "wait_s": 20.0, "worker": worker}
        first = Told("WORKER/greet", "", "lease", body)
        self.assertEqual(stub.told[0], first)

    def test_what_a_function_returns_is_the_result_of_its_event(self) -> None:
        returned = [{"receipt": 7}, None, "x" * 65_535, float("nan"), object()]
        stub = Stub(self, list(range(len(returned))))
        seen: list[int] = []

        def greet(event: Any, context: Context) -> Any:
            seen.append(event["value"])
            if len(seen) == len(returned):
                stub.worker.stop()
            return returned[event["value"]]

        with self.assertLogs("wakeq", "WARNING") as logged:
            stub.worker.run({"greet": greet}, concurrency=5, signals=())
        results = {told.id: told.body for told in stub.about("complete")}
        self.assertEqual(results["event-0"], {"lease": TOKEN, "result": {"receipt": 7}})
        self.assertTrue(all(results[f"event-{id}"] == {"lease": TOKEN} for id in range(1, 5)))
        self.assertEqual(sum("is not kept as its result" in line for line in logged.output), 3)

    def test_what_a_function_raises_says_what_becomes_of_its_event(self) -> None:
        stub = Stub(self, ["retry", "later", "dead", "nothing"])
        begun = threading.Barrier(4)

        async def send(event: Any, context: Context) -> None:
            begun.wait()
            stub.worker.stop()
            if event["value"] == "retry":
                raise ValueError("no route")
            if event["value"] == "later":
                raise RetryError("busy", retry_s=7)
            if event["value"] == "dead":
                raise DeadError("no such user")
            raise KeyError

        # As many threads as events, so that all of them begin.
        stub.worker.run({"MAIL/send": send}, concurrency=4, signals=())
        told = {told.id: {**told.body} for told in stub.about("release")}
        expected = {
            "event-0": {"lease": TOKEN, "error": "no route"},
            "event-1": {"lease": TOKEN, "error": "busy", "retry_s": 7},
            "event-2": {"lease": TOKEN, "error": "no such user", "dead": True},
            "event-3": {"lease": TOKEN, "error": "KeyError"},
        }
        self.assertEqual((told, stub.about("complete")), (expected, []))
        self.assertEqual(stub.told[0].handler, "MAIL/send")

    def test_a_failure_that_the_service_would_refuse_is_made_to_fit(self) -> None:
        stub = Stub(self, [-1.0, 1e12])
        begun = threading.Barrier(2)

        def big(event: Any, context: Context) -> None:
            begun.wait()
            stub.worker.stop()
            raise RetryError("\udc80" + "x" * 300_000, retry_s=event["value"])

        stub.worker.run({"big": big}, concurrency=2, signals=())
        told = {told.id: {**told.body} for told in stub.about("release")}
        error = "?" + "x" * 3_999
        expected = {
            "event-0": {"lease": TOKEN, "error": error, "retry_s": 0.0},
            "event-1": {"lease": TOKEN, "error": error, "retry_s": 2_592_000},
        }
        self.assertEqual(told, expected)

    def test_what_is_no_exception_of_a_function_is_a_failure_as_well(self) -> None:
        stub = Stub(self, ["exit", "cancel"])
        begun = threading.Barrier(2)

        async def leave(event: Any, context: Context) -> None:
            begun.wait()
            stub.worker.stop()
            if event["value"] == "exit":
                sys.exit("bye")
            raise asyncio.CancelledError

        stub.worker.run({"leave": leave}, concurrency=2, signals=())
        errors = {told.id: told.body.get("error") for told in stub.about("release")}
        self.assertEqual(errors, {"event-0": "bye", "event-1": "CancelledError"})

    def test_a_worker_goes_on_after_an_answer_that_is_not_the_services(self) -> None:
        stub = Stub(self, [1], lambda told, before: Answer(200, []) if before == 0 else None)
        with self.assertLogs("wakeq", "WARNING"):
            stub.worker.run({"x": lambda event, context: stub.worker.stop()}, signals=())
        self.assertEqual(len(stub.about("complete")), 1)

    def test_a_request_waits_for_a_part_of_the_lease_that_it_asks_for(self) -> None:
        stub = Stub(self, [1])
        stub.worker.run({"x": lambda event, context: stub.worker.stop()}, lease_s=6, name="me", signals=())
        first = {key: stub.told[0].body[key] for key in ("lease_s", "wait_s", "worker")}
        self.assertEqual(first, {"lease_s": 6, "wait_s": 2.0, "worker": "me"})

    def test_a_lease_is_over_by_itself_where_no_extension_is_answered(self) -> None:
        held = threading.Event()
        self.addCleanup(held.set)
        stub = Stub(self, ["a", "b"], held=lambda told: held.wait() if told.verb == "extend" else None)
        reasons: list[str | None] = []

        def long(event: Any, context: Context) -> None:
            context.cancelled.wait()
            reasons.append(context.reason)
            held.set()
            stub.worker.stop()

        with self.assertNoLogs("wakeq", "WARNING"):
            stub.worker.run({"long": long}, concurrency=2, lease_s=1, signals=())
        self.assertEqual(reasons, ["lease-lost", "lease-lost"])

    def test_no_more_than_the_concurrency_run_at_once(self) -> None:
        stub = Stub(self, list(range(30)))
        lock, counts = threading.Lock(), {"running": 0, "most": 0, "ended": 0}

        def work(event: Any, context: Context) -> None:
            with lock:
                counts["running"] += 1
                counts["most"] = max(counts["most"], counts["running"])
            with lock:
                counts["running"] -= 1
                counts["ended"] += 1
                if counts["ended"] == 30:
                    stub.worker.stop()

        stub.worker.run({"a": work, "b": work}, concurrency=3, signals=())
        self.assertTrue(counts["most"] <= 3 and counts["ended"] == 30, counts)
        self.assertTrue(all(told.body["max"] <= 3 for told in stub.about("lease")))

    def test_a_lease_is_extended_by_itself_and_a_lost_one_stops_its_function(self) -> None:
        stub = Stub(self, ["long"], lambda told, before: problem(410) if told.verb == "extend" and before > 3 else None)
        reasons: list[str | None] = []

        def long(event: Any, context: Context) -> None:
            context.cancelled.wait()
            reasons.append(context.reason)
            stub.worker.stop()

        stub.worker.run({"long": long}, lease_s=4, signals=())
        self.assertEqual(reasons, ["lease-lost"])
        self.assertGreaterEqual(len(stub.about("extend")), 2)
        self.assertEqual((stub.about("complete"), stub.about("release")), ([], []))

    def test_a_cancelled_event_stops_its_function_and_counts_no_failure(self) -> None:
        cancelled = Answer(200, {"lease_until": NOW, "cancelled": True})
        stub = Stub(self, ["long"], lambda told, _: cancelled if told.verb == "extend" else None)

        def long(event: Any, context: Context) -> None:
            context.cancelled.wait()
            stub.worker.stop()
            raise InterruptedError

        stub.worker.run({"long": long}, lease_s=4, signals=())
        self.assertEqual([told.body for told in stub.about("release")], [{"lease": TOKEN}])

    def test_the_lease_of_a_cancelled_event_is_not_extended_any_more_and_ends(self) -> None:
        cancelled = Answer(200, {"lease_until": NOW, "cancelled": True})
        stub = Stub(self, ["deaf"], lambda told, _: cancelled if told.verb == "extend" else None)

        def deaf(event: Any, context: Context) -> None:
            while context.reason != "lease-lost":
                time.sleep(0.02)
            stub.worker.stop()

        stub.worker.run({"deaf": deaf}, lease_s=4, signals=())
        self.assertEqual(len(stub.about("extend")), 1)
        self.assertEqual((stub.about("complete"), stub.about("release")), ([], []))

    def test_what_has_not_begun_is_released_when_the_worker_stops(self) -> None:
        def two(told: Told, before: int) -> Answer | None:
            if told.verb == "lease":
                told.body["max"] = 2
            return None

        stub = Stub(self, [1, 2], two)
        begun: list[Any] = []

        def slow(event: Any, context: Context) -> None:
            begun.append(event["value"])
            stub.worker.stop()
            context.cancelled.wait()
            self.assertEqual(context.reason, "shutdown")

        stub.worker.run({"slow": slow}, concurrency=1, grace_s=0.05, signals=())
        self.assertEqual(begun, [1])
        self.assertEqual([told.id for told in stub.about("release")], ["event-1"])
        self.assertEqual([told.id for told in stub.about("complete")], ["event-0"])

    def test_errors_of_the_service_are_repeated_and_a_completion_until_it_is_answered(self) -> None:
        refused = iter(range(1000))

        def every_other(told: Told, _: int) -> Answer | None:
            return problem(503) if told.verb != "extend" and next(refused) % 2 == 0 else None

        stub = Stub(self, ["x"], every_other)
        with self.assertLogs("wakeq", "WARNING"):
            stub.worker.run({"x": lambda event, context: stub.worker.stop()}, signals=())
        self.assertEqual(len(stub.about("complete")), 2)

    def test_bad_arguments_are_a_value_error(self) -> None:
        worker = Worker(Client("http://127.0.0.1:1", "wakeq_stub"))

        def work(event: Any, context: Context) -> None: ...

        wrong: list[tuple[Any, dict[str, Any]]] = [
            ({}, {}),
            ({"a/b/c": work}, {}),
            ({"": work}, {}),
            ({"a": 1}, {}),
            ({"a": work}, {"concurrency": 0}),
            ({"a": work}, {"lease_s": 0.5}),
            ({"a": work}, {"grace_s": -1}),
            ({"a": work}, {"name": "host:7"}),
            ({"a": work}, {"name": ""}),
        ]
        for functions, options in wrong:
            with self.assertRaises(ValueError):
                worker.run(functions, **options)

    def test_sigterm_stops_a_program_when_its_functions_have_ended(self) -> None:
        stub = Stub(self, [1])
        program = """if True:
            import os, signal, sys
            from wakeq import Client, Worker
            def slow(event, context):
                os.kill(os.getpid(), signal.SIGTERM)
                context.cancelled.wait(0.2)
                print("ended", flush=True)
            Worker(Client(sys.argv[1], "wakeq_stub")).run({"slow": slow})
            print("stopped", flush=True)
        """
        ran = subprocess.run(
            [sys.executable, "-c", program, stub.url], capture_output=True, text=True, env=os.environ, timeout=60
        )
        self.assertEqual((ran.returncode, ran.stdout), (0, "ended\nstopped\n"), ran.stderr)
        self.assertEqual(len(stub.about("complete")), 1)


@needs_service
class RealService(unittest.TestCase):
    def test_events_are_worked_off_failed_ones_again_and_dead_ones_are_dead(self) -> None:
        wakeq, name = client(), fresh_name()
        self.addCleanup(wakeq.close)
        wakeq.pull(name, retries=1, delay_s=0)
        wakeq.emit_all([{"name": name, "value": value} for value in ("good", "flaky", "bad")])
        ran: list[str] = []

        def work(event: Any, context: Context) -> None:
            ran.append(f"{event['value']} {event['attempt']}")
            if ran[-1] == "flaky 1":
                raise ValueError("try again")
            if event["value"] == "bad":
                raise DeadError("never")

        worker = Worker(wakeq)
        running = threading.Thread(target=worker.run, args=({name: work},))
        running.start()

        def ended() -> Any:
            dead = wakeq.dead_events(name=name)["items"]
            return dead if len(dead) == 1 and len(ran) == 4 else None

        try:
            dead = until(ended)
        finally:
            worker.stop()
            running.join()
        self.assertEqual(sorted(ran), ["bad 1", "flaky 1", "flaky 2", "good 1"])
        self.assertEqual((dead[0]["cause"], dead[0]["last_error"]), ("rejected", "never"))
        wakeq.unpull(name)
