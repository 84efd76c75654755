"""What the tests share: the service that the environment names, and small servers in front of it."""

from __future__ import annotations

import http.server
import os
import threading
import time
import unittest
import uuid
from typing import Any, Callable, Iterable, Literal, Mapping, TypeVar

from wakeq import ApiError, Client
from wakeq.schema import LeasedEvent, NewEvent

URL = os.environ.get("WAKEQ_SERVER", "")
KEY = os.environ.get("WAKEQ_KEY", "")
OTHER_KEY = os.environ.get("WAKEQ_OTHER_KEY", "")
# Reads every canvas.
WIDE_KEY = os.environ.get("WAKEQ_WIDE_KEY", "")
# An admin's, of the other tenant.
ADMIN_KEY = os.environ.get("WAKEQ_ADMIN_KEY", "")
# A queue that gets the events with its name, and that nothing works off.
QUEUE = os.environ.get("WAKEQ_QUEUE", "")
OTHER_CANVAS = os.environ.get("WAKEQ_OTHER_CANVAS", "00000000-0000-0000-0000-000000000007")

needs_service = unittest.skipUnless(
    URL and KEY and OTHER_KEY, "WAKEQ_SERVER, WAKEQ_KEY and WAKEQ_OTHER_KEY name a service"
)

T = TypeVar("T")


def client(**options: Any) -> Client:
    return Client(options.pop("url", URL), options.pop("key", KEY), **options)


def other() -> Client:
    """Of another tenant."""
    return client(key=OTHER_KEY, canvas=OTHER_CANVAS)


def fresh_name() -> str:
    """A handler of no other test."""
    return f"client-{uuid.uuid4()}"


def until(ask: Callable[[], T | None]) -> T:
    """Asks until there is an answer."""
    end_s = time.monotonic() + 60
    while time.monotonic() < end_s:
        answer = ask()
        if answer is not None:
            return answer
        time.sleep(0.05)
    raise AssertionError("it did not happen within a minute")


LEASES = "/v1/canvases/{canvas}/handlers/{module}/{name}/leases"


def leased(
    wakeq: Client,
    event: NewEvent,
    *,
    count: int = 1,
    worker: str | None = None,
    on_death: Literal["skip", "halt"] = "skip",
) -> list[LeasedEvent]:
    """Emits events of a handler, and leases them."""
    name = event["name"]
    wakeq.pull(name, retries=0, on_death=on_death)
    emitted = {one["id"] for one in wakeq.emit_all([event] * count)}
    path = {"module": "WORKER", "name": name}
    body = {"max": 10, "lease_s": 60, "worker": worker}
    events: list[LeasedEvent] = []

    # A lease passes over what the service holds locked at that moment: the next one has it.
    def all_leased() -> bool | None:
        events.extend(wakeq.request("POST", LEASES, path=path, body=body)["events"])
        return True if len(events) >= count else None

    until(all_leased)
    assert {event["id"] for event in events} == emitted, events
    return events


def release(wakeq: Client, event: LeasedEvent, **how: object) -> None:
    path = {"module": event["module"], "name": event["name"], "id": event["id"]}
    wakeq.request("POST", LEASES + "/{id}/release", path=path, body={"lease": event["lease"], **how})


def ids(items: Iterable[Mapping[str, object]]) -> list[object]:
    return [item["id"] for item in items]


class ServiceTestCase(unittest.TestCase):
    """Tests with a client of the service."""

    def setUp(self) -> None:
        self.wakeq = client()
        self.addCleanup(self.wakeq.close)

    def fails(self, status: int, code: str, call: Callable[..., Any], *args: Any, **more: Any) -> None:
        with self.assertRaises(ApiError) as caught:
            call(*args, **more)
        error = caught.exception
        self.assertEqual((error.status, error.code), (status, code), error)
        self.assertEqual(error.type, f"urn:wakeq:problem:{code}")
        self.assertTrue(error.title and error.detail and error.request_id)
        self.assertTrue(str(error.detail) in str(error) and str(error.request_id) in str(error))


class Request(http.server.BaseHTTPRequestHandler):
    """A request to a server of a test, which passes it to a function."""

    protocol_version = "HTTP/1.1"
    answering: Callable[[Request], None]

    def take(self) -> None:
        type(self).answering(self)

    do_GET = do_PUT = do_POST = do_DELETE = take

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def serving(test: unittest.TestCase, answering: Callable[[Request], None]) -> str:
    """The URL of a server that answers as it is told, until the test ends."""
    handler = type("Answering", (Request,), {"answering": staticmethod(answering)})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    test.addCleanup(server.server_close)
    test.addCleanup(server.shutdown)
    return f"http://127.0.0.1:{server.server_port}"
