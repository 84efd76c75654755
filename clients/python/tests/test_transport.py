"""What happens between client and service: lost answers, refusals for now, time-outs, redirects,
connections that ended, and arguments that are never sent."""

from __future__ import annotations

import json
import unittest
import urllib.request
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from wakeq import ApiError, Client, TransportError

from .service import URL, Request, client, fresh_name, needs_service, serving

KEY = f"wakeq_0123456789ab_{'5' * 80}"
NOWHERE = "http://127.0.0.1:1"
PROBLEM = {"type": "urn:wakeq:problem:unavailable", "title": "Later", "status": 503, "detail": "busy"}


class Transport(unittest.TestCase):
    @needs_service
    def test_an_emit_whose_answer_is_lost_is_not_doubled(self) -> None:
        seen: list[str] = []

        def forward(request: Request) -> None:
            body = request.body() or None
            sent = urllib.request.Request(URL + request.path, body, dict(request.headers), method=request.command)
            seen.append(request.path)
            try:
                with urllib.request.urlopen(sent, timeout=30) as answer:
                    status, kind, text = answer.status, answer.headers["content-type"], answer.read()
            except urllib.request.HTTPError as error:
                status, kind, text = error.code, error.headers["content-type"], error.read()
            if len(seen) == 1:
                request.close_connection = True
                return
            request.answer(status, text, content_type=kind)

        wakeq, name = client(url=serving(self, forward)), fresh_name()
        id = wakeq.emit({"name": name, "delay_s": 3600})["id"]
        self.assertEqual(len(seen), 2)
        listed = wakeq.request("GET", "/v1/canvases/{canvas}/events", query={"name": name})
        self.assertEqual([event["id"] for event in listed["items"]], [id])
        with ThreadPoolExecutor(2) as pool:
            emit = lambda _: wakeq.emit({"name": name, "delay_s": 3600}, idempotency_key=name)["id"]
            first, second = pool.map(emit, range(2))
        self.assertEqual(first, second, "one key, one event")
        with self.assertRaises(ApiError) as caught:
            wakeq.emit({"name": name, "delay_s": 60}, idempotency_key=name)
        self.assertEqual((caught.exception.status, caught.exception.code), (422, "idempotency-mismatch"))
        for sent in (id, first):
            wakeq.cancel(sent)

    def test_a_refusal_for_now_is_repeated_after_its_time_or_told_to_the_caller(self) -> None:
        keys: list[str | None] = []

        def answer(request: Request) -> None:
            request.body()
            keys.append(request.headers["idempotency-key"])
            if len(keys) == 3:
                return request.answer(202, b'{"id":"1","duplicate":false}', content_type="application/json")
            after = "60" if "dead" in request.path else "0"
            body = json.dumps({**PROBLEM, "request_id": "r-1"}).encode()
            request.answer(503, body, content_type="application/problem+json", retry_after=after)

        wakeq = Client(serving(self, answer), KEY)
        self.assertEqual(wakeq.emit({"name": "greet"}), {"id": "1", "duplicate": False})
        self.assertEqual(len(set(keys)), 1, "the same key each time")
        self.assertRegex(keys[0] or "", "^[0-9a-f-]{36}$")
        with self.assertRaises(ApiError) as caught:
            wakeq.dead_events()
        error = caught.exception
        self.assertEqual((error.status, error.retry_after_s, error.request_id, len(keys)), (503, 60, "r-1", 4))
        self.assertTrue(error.is_temporary)
        with self.assertRaises(ApiError):
            wakeq.cancel("1")
        self.assertEqual(len(keys), 5, "it may have been cancelled: not repeated")

    def test_a_running_event_is_cancelled_on_request_only(self) -> None:
        asked: list[str] = []

        def answer(request: Request) -> None:
            asked.append(request.path)
            body = b'{"id":"1","next":"its handler is told to stop"}'
            request.answer(202, body, content_type="application/json")

        wakeq = Client(serving(self, answer), KEY)
        wakeq.cancel("1")
        self.assertEqual(wakeq.cancel("1", running=True).get("next"), "its handler is told to stop")
        path = "/v1/canvases/00000000-0000-0000-0000-000000000000/events/1/cancel"
        self.assertEqual(asked, [path, path + "?running=true"])

    def test_an_answer_that_does_not_come_or_is_not_wakeq_s_is_told_apart(self) -> None:
        def late(request: Request) -> None:
            request.rfile.read()

        with self.assertRaisesRegex(TransportError, "within 0.05 s"):
            Client(serving(self, late), KEY, timeout_s=0.05, retries=0).handlers()
        with self.assertRaises(TransportError) as caught:
            Client(NOWHERE, KEY, retries=1).handlers()
        self.assertTrue(caught.exception.is_temporary)

        def cut(request: Request) -> None:
            request.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n[]")
            request.close_connection = True

        with self.assertRaisesRegex(TransportError, "IncompleteRead"):
            Client(serving(self, cut), KEY, retries=0).handlers()
        visits: list[str] = []
        elsewhere = serving(self, lambda request: visits.append(request.path))
        moved = serving(self, lambda request: request.answer(302, location=elsewhere))
        page = serving(self, lambda request: request.answer(200, b"<html>"))
        for url, status in ((moved, 302), (page, 200)):
            with self.assertRaisesRegex(ApiError, "not in wakeq's format") as strange:
                Client(url, KEY).handlers()
            error = strange.exception
            self.assertEqual((error.status, error.code, error.type), (status, None, "about:blank"))
        self.assertEqual(visits, [])

    def test_a_key_in_the_clear_to_another_machine_is_warned_of(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for url in (NOWHERE, "http://localhost", "http://[::1]:80", "https://queue.example"):
                self.assertFalse(Client(url, KEY).is_in_the_clear, url)
        for url in ("http://queue.example", "http://10.0.0.1:8080", "http://127.0.0.1.example"):
            with self.assertWarnsRegex(UserWarning, "in the clear to " + url) as caught:
                self.assertTrue(Client(url, KEY).is_in_the_clear)
            self.assertNotIn(KEY, str(caught.warning))

    def test_pages_of_handlers_are_gathered(self) -> None:
        def answer(request: Request) -> None:
            is_second = "cursor=h~a~b" in request.path
            page = {"items": [{"name": "c" if is_second else "b"}], "next_cursor": None if is_second else "h~a~b"}
            request.answer(200, json.dumps(page).encode(), content_type="application/json")

        with Client(serving(self, answer), KEY, retries=0) as wakeq:
            self.assertEqual([handler["name"] for handler in wakeq.handlers()], ["b", "c"])

    def test_connections_are_kept_and_those_that_ended_are_not_used(self) -> None:
        peers: set[Any] = set()

        def answer(request: Request) -> None:
            peers.add(request.client_address)
            request.close_connection = "cron" in request.path
            request.answer(200, b'{"items":[]}', content_type="application/json")

        with Client(serving(self, answer), KEY, retries=0) as wakeq:
            for _ in range(3):
                wakeq.handlers()
            self.assertEqual(len(peers), 1)
            for _ in range(3):
                wakeq.request("GET", "/v1/canvases/{canvas}/cron")
                # The server ends it without having said so; wait until that is seen.
                sock = wakeq._transport._idle[0][0].sock
                self.assertEqual(sock.recv(1), b"")
            self.assertEqual(len(peers), 3)

    def test_a_path_its_values_and_the_query_arrive_as_they_are_meant(self) -> None:
        seen: list[str] = []

        def answer(request: Request) -> None:
            seen.extend((request.path, request.headers["authorization"]))
            request.answer(200, b'{"items":[]}', content_type="application/json")

        canvas = "01a1fa2a-7101-7382-922f-e03ca3c19953"
        wakeq = Client(serving(self, answer) + "/queue/", lambda: KEY, canvas=canvas)
        tombstones = "/v1/canvases/{canvas}/objects/{object}/tombstones"
        wakeq.request("GET", tombstones, path={"object": "work:1/é ?"}, query={"after": 7, "queue": None})
        target = f"/queue/v1/canvases/{canvas}/objects/work%3A1%2F%C3%A9%20%3F/tombstones?after=7"
        self.assertEqual(seen, [target, f"Bearer {KEY}"])

    def test_the_key_is_in_nothing_that_is_printed(self) -> None:
        wakeq = Client(NOWHERE, KEY, retries=0)
        with self.assertRaises(TransportError) as caught:
            wakeq.handlers()
        printed = repr((wakeq, str(wakeq), vars(wakeq), caught.exception, str(caught.exception)))
        self.assertNotIn(KEY[-20:], printed)
        with self.assertRaises(ValueError) as refused:
            Client(NOWHERE, f"{KEY} ")
        self.assertNotIn(KEY[-20:], str(refused.exception))

    def test_invalid_arguments_are_never_sent(self) -> None:
        urls = ["", "queue.example", "localhost:8080", "ftp://x", "https://a:b@x", "https://x?a", "https://x#a"]
        for url in [*urls, "http://", "http://x:99999", "https://é", "http://x/ y", "http://[x"]:
            with self.assertRaises(ValueError, msg=url):
                Client(url, KEY)
        for key in ("", "a b", "é", f"{KEY}\r\nx: y", f"{KEY}\n"):
            with self.assertRaisesRegex(ValueError, "^a key is"):
                Client(NOWHERE, key)
        wrong: list[dict[str, Any]] = [{"canvas": "7"}, {"timeout_s": 0}, {"retries": -1}, {"retries": 99}]
        for options in wrong:
            with self.assertRaises(ValueError, msg=str(options)):
                Client(NOWHERE, KEY, **options)
        wakeq = Client(NOWHERE, KEY)
        for id in ("", ".", "..", None):
            with self.assertRaisesRegex(ValueError, "the path needs id"):
                wakeq.cancel(id)  # type: ignore[arg-type]
        for value in (float("nan"), float("inf"), "\udc00"):
            with self.assertRaises(ValueError):
                wakeq.emit({"name": "greet", "value": value})
        with self.assertRaises(TypeError):
            wakeq.emit({"name": "greet", "value": object()})
        with self.assertRaises(ValueError):
            wakeq.emit({"name": "greet"}, idempotency_key="é")
