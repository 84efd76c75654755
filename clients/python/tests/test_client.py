"""Each call against a real service, whose worker may call this machine: WAKEQ_SERVER, WAKEQ_KEY (on
the nil canvas), WAKEQ_OTHER_KEY and WAKEQ_ADMIN_KEY (on the canvas of another tenant)."""

from __future__ import annotations

import unittest
from typing import Any, Callable

from wakeq import verify
from wakeq.schema import DeadEvent, EventOptions

from .service import (
    ADMIN_KEY,
    KEY,
    OTHER_CANVAS,
    OTHER_KEY,
    Request,
    ServiceTestCase,
    client,
    fresh_name,
    needs_service,
    other,
    serving,
    until,
)

NOBODY = "01a1fa2a-7101-7382-922f-e03ca3c19953"


@needs_service
class Calls(ServiceTestCase):
    def test_an_event_is_emitted_explained_read_and_cancelled(self) -> None:
        wakeq, name = self.wakeq, fresh_name()
        value = {"to": "Ada", "é": [1.5, None]}
        emitted = wakeq.emit({"name": name, "value": value, "delay_s": 3600})
        self.assertFalse(emitted["duplicate"])
        id = emitted["id"]
        explained = wakeq.explain(id)
        self.assertEqual((explained["id"], explained["state"], explained["name"]), (id, "delayed", name))
        self.assertTrue(explained["next"] and "value" not in explained)
        self.assertEqual(wakeq.event(id)["value"], value)
        self.assertEqual(wakeq.cancel(id), {"id": id})
        for call in (wakeq.event, wakeq.explain, wakeq.cancel):
            self.fails(404, "not-found", call, id)
        waiting = wakeq.emit({"name": name, "delay_s": 3600})["id"]
        self.assertEqual(wakeq.cancel(waiting, running=True), {"id": waiting})

    def test_an_answer_says_what_became_of_a_unique_key(self) -> None:
        wakeq, name = self.wakeq, fresh_name()
        first = wakeq.emit({"name": name, "delay_s": 3600, "unique": {"key": "k"}})
        self.assertEqual(first.get("outcome"), "inserted")
        kept = wakeq.emit({"name": name, "unique": {"key": "k", "until": "ended"}})
        self.assertEqual((kept["id"], kept.get("outcome")), (first["id"], "kept"))
        replaced = wakeq.emit(
            {"name": name, "delay_s": 3600, "unique": {"key": "k", "on_conflict": "replace"}}
        )
        self.assertEqual((replaced["id"], replaced.get("outcome")), (first["id"], "replaced"))
        postponed = wakeq.emit(
            {
                "name": name,
                "unique": {"key": "k", "on_conflict": "postpone", "postpone_s": 7200, "at_most_s": 7200},
            }
        )
        self.assertEqual((postponed["id"], postponed.get("outcome")), (first["id"], "postponed"))
        shown = wakeq.event(first["id"])
        self.assertEqual((shown.get("unique_key"), shown.get("delay_until")), ("k", postponed.get("due")))
        wakeq.cancel(first["id"])

    def test_only_an_attempt_that_runs_leaves_a_checkpoint(self) -> None:
        wakeq, claim = self.wakeq, "0000000137ab6c1c"
        id = wakeq.emit({"name": fresh_name(), "delay_s": 3600})["id"]
        self.fails(404, "not-found", wakeq.checkpoint, id)
        self.fails(410, "lease-over", wakeq.store_checkpoint, id, claim, {"page": 7})
        self.fails(400, "bad-request", wakeq.store_checkpoint, id, "none", {"page": 7})
        self.fails(404, "not-found", other().store_checkpoint, id, claim, {"page": 7})
        self.fails(404, "not-found", other().checkpoint, id)
        wakeq.cancel(id)

    def test_an_event_shows_what_it_asks_for(self) -> None:
        wakeq, name = self.wakeq, fresh_name()
        options: EventOptions = {
            "retries": 7,
            "delays_s": [1, 60.5],
            "timeout_s": 30,
            "limits": ["customer:7"],
            "urgent": True,
        }
        id = wakeq.emit({"name": name, "delay_s": 3600, "options": options})["id"]
        self.assertEqual(wakeq.event(id).get("options"), options)
        self.fails(400, "bad-request", wakeq.emit, {"name": name, "options": {"retries": 1001}})
        self.fails(400, "bad-request", wakeq.emit, {"name": name, "options": {"limits": ["canvas"]}})
        wakeq.cancel(id)

    def test_a_batch_is_emitted_all_or_none(self) -> None:
        wakeq, name = self.wakeq, fresh_name()
        emitted = wakeq.emit_all([{"name": name, "value": value, "delay_s": 3600} for value in (1, 2, 3)])
        self.assertEqual(len({one["id"] for one in emitted}), 3)
        self.assertEqual(wakeq.event(emitted[2]["id"])["value"], 3)
        self.fails(400, "bad-request", wakeq.emit_all, [{"name": name}, {"name": "no blanks"}])
        listed = wakeq.request("GET", "/v1/canvases/{canvas}/events", query={"name": name, "limit": 100})
        self.assertEqual(len(listed["items"]), 3)
        self.assertEqual(wakeq.purge(name)["purged"], 3)

    def test_a_handler_is_paused_on_its_canvas_only_and_unpaused(self) -> None:
        wakeq, name = self.wakeq, fresh_name()
        paused = wakeq.pause(name, reason="mail server down", for_s=600)
        self.assertEqual((paused["new"], paused["rule"]["kind"]), (True, "pause"))
        id = wakeq.emit({"name": name})["id"]
        rule = wakeq.explain(id)["rule"]
        self.assertEqual(rule and rule["reason"], "mail server down")
        self.assertEqual([one["paused"] for one in wakeq.handlers() if one["name"] == name], [1])
        self.assertNotIn(name, [one["name"] for one in other().handlers()])
        self.assertFalse(other().unpause(name)["lifted"])
        wakeq.cancel(id)
        self.assertEqual([wakeq.unpause(name)["lifted"] for _ in range(2)], [True, False])

    def test_a_whole_canvas_is_paused_and_no_other(self) -> None:
        wakeq, name = self.wakeq, fresh_name()
        paused = other().pause_canvas(reason="wrong prices", for_s=600)
        self.assertEqual((paused["rule"]["kind"], paused["rule"]["stops"]), ("pause", "canvas"))
        held, free = other().emit({"name": name})["id"], wakeq.emit({"name": name})["id"]
        rule = other().explain(held)["rule"]
        self.assertEqual(rule and rule["stops"], "canvas")
        switches = [(switch["kind"], switch.get("reason")) for switch in other().switches()]
        self.assertEqual(switches, [("pause", "wrong prices")])
        self.assertEqual(wakeq.switches(), [])
        self.assertIsNone(wakeq.explain(free)["rule"])
        other().cancel(held)
        wakeq.cancel(free)
        self.assertFalse(wakeq.unpause_canvas()["lifted"])
        self.assertTrue(other().unpause_canvas()["lifted"])

    @unittest.skipUnless(ADMIN_KEY, "WAKEQ_ADMIN_KEY is an admin's")
    def test_an_admin_blocks_a_handler_or_a_canvas_and_users_do_not_lift_that(self) -> None:
        wakeq, name = self.wakeq, fresh_name()
        admin, strange = client(key=ADMIN_KEY, canvas=OTHER_CANVAS), client(key=ADMIN_KEY)
        blocked = admin.block(name, reason="wrong prices", for_s=600)
        rule = blocked["rule"]
        self.assertEqual((blocked["new"], rule["kind"], rule["stops"]), (True, "block", "handler"))
        held, free = other().emit({"name": name})["id"], wakeq.emit({"name": name, "delay_s": 3600})["id"]
        self.assertEqual(other().explain(held)["state"], "blocked")
        lifted = other().unpause(name)
        self.assertEqual((lifted["lifted"], lifted.get("still")), (False, "block"))
        reasons = [rule.get("reason") for rule in other().handler(name)["rules"]]
        self.assertEqual(reasons, ["wrong prices"])
        self.assertEqual(wakeq.handler(name)["rules"], [])
        other().cancel(held)
        wakeq.cancel(free)

        self.assertEqual(admin.block_canvas(reason="wrong prices")["rule"]["stops"], "canvas")
        switches = [(switch["kind"], switch["stops"]) for switch in other().switches()]
        self.assertEqual(switches, [("block", "canvas")])
        self.assertEqual(wakeq.switches(), [])
        lifted = admin.unblock(name)
        under = lifted.get("under")
        self.assertEqual((lifted["lifted"], under and under["stops"]), (True, "canvas"))
        self.assertEqual([admin.unblock_canvas()["lifted"] for _ in range(2)], [True, False])

        self.fails(404, "not-found", strange.block, name)
        self.fails(404, "not-found", strange.unblock, name)
        self.fails(404, "not-found", strange.block_canvas)
        self.fails(404, "not-found", strange.unblock_canvas)
        self.fails(403, "forbidden", wakeq.block, name)
        self.fails(403, "forbidden", wakeq.block_canvas)
        self.fails(403, "forbidden", admin.block_all)
        self.fails(403, "forbidden", admin.unblock_all)

    def test_statistics_are_of_a_handler_or_of_the_canvas(self) -> None:
        wakeq, name = self.wakeq, fresh_name()
        for chart in (wakeq.statistics(name, step_s=3600), wakeq.statistics(step_s=3600)):
            self.assertEqual(chart["step_s"], 3600)
            self.assertGreaterEqual(len(chart["at"]), 24)
            columns: tuple[list[Any], ...] = (chart["emitted"], chart["wait"]["count"], chart["run"]["p95_s"])
            self.assertEqual({len(column) for column in columns}, {len(chart["at"])})
        chart = wakeq.statistics(name, from_="2020-01-01T00:00:00Z", to="2020-01-01T02:00:00Z")
        self.assertEqual(chart["at"], ["2020-01-01T00:00:00Z", "2020-01-01T01:00:00Z"])
        self.assertEqual(chart["completed"], [0, 0])
        self.fails(400, "bad-request", wakeq.statistics, step_s=90)

    def test_deliveries_are_verified_and_a_dead_event_is_listed_and_redriven(self) -> None:
        wakeq, name = self.wakeq, fresh_name()
        secrets: list[str] = []
        is_broken = [True]
        values: list[Any] = []

        def receive(request: Request) -> None:
            delivery = verify(request.headers, request.body(), secrets)
            values.append((delivery.id, delivery.name, delivery.canvas, delivery.value))
            request.answer(500 if is_broken[0] else 204)

        put = wakeq.set_target(name, url=serving(self, receive), policy={"retries": 0})
        self.assertEqual((put["new"], put["target"]["policy"].get("retries")), (True, 0))
        secrets.append(put.get("secret") or "")
        ids = sorted(wakeq.emit({"name": name, "value": value})["id"] for value in (1, 2))

        def both_are_dead() -> list[DeadEvent] | None:
            items = wakeq.dead_events(name=name)["items"]
            return items if len(items) == 2 else None

        self.assertEqual(sorted(dead["id"] for dead in until(both_are_dead)), ids)
        self.assertEqual(len(wakeq.dead_events(name=name, limit=1)["items"]), 1)
        self.assertEqual(other().dead_events(name=name)["items"], [])
        self.assertEqual(other().redrive({"name": name})["redriven"], 0)
        self.fails(404, "not-found", other().redrive_one, ids[0])

        is_broken[0] = False
        self.assertEqual(wakeq.redrive({"name": name, "dry_run": True})["redriven"], 2)
        self.assertEqual(wakeq.redrive_one(ids[0]), {"id": ids[0]})
        redriven = wakeq.redrive({"name": name})
        self.assertEqual((redriven["redriven"], redriven["more"]), (1, False))
        until(lambda: values if len(values) == 4 else None)
        canvas = "00000000-0000-0000-0000-000000000000"
        self.assertEqual({of[1:3] for of in values}, {(name, canvas)})
        self.assertEqual(sorted(of[3] for of in values), [1, 1, 2, 2])

        self.assertIn(name, [target["name"] for target in wakeq.each_target(limit=1)])
        cursor = wakeq.targets(limit=1).get("next_cursor")
        foreign = other().targets(name=name)["items"] + other().targets(cursor=cursor)["items"]
        self.assertNotIn(name, [target["name"] for target in foreign])
        self.fails(404, "not-found", other().remove_target, name)
        wakeq.remove_target(name)
        self.assertEqual(wakeq.targets(name=name)["items"], [])

    def test_nothing_crosses_canvases(self) -> None:
        id = self.wakeq.emit({"name": fresh_name(), "delay_s": 3600})["id"]
        for call in (other().event, other().explain, other().cancel):
            self.fails(404, "not-found", call, id)
        intruder = client(key=OTHER_KEY)
        self.fails(404, "not-found", intruder.emit, {"name": fresh_name()})
        self.fails(404, "not-found", intruder.redrive, {"all": True})
        self.fails(404, "not-found", intruder.pause, "greet")
        for call in (intruder.explain, intruder.cancel):
            self.fails(404, "not-found", call, id)
        self.fails(404, "not-found", intruder.set_tags, id, [])
        self.fails(404, "not-found", intruder.set_due, id, delay_s=1)
        self.fails(404, "not-found", intruder.open_batch, "import:1", {"name": "imported"})
        self.fails(404, "not-found", intruder.begin_operation, {"kind": "cancel", "all": True})
        self.fails(404, "not-found", intruder.preview_operation, {"kind": "cancel", "all": True})
        self.fails(404, "not-found", intruder.set_limit, "customer", concurrency=1)
        self.fails(404, "not-found", intruder.run_now, id)
        self.fails(404, "not-found", intruder.handler, "greet")
        self.fails(404, "not-found", intruder.attempts, "greet")
        self.fails(404, "not-found", intruder.depth, "greet")
        self.fails(404, "not-found", intruder.purge, "greet")
        self.fails(404, "not-found", intruder.set_target, "greet", url="https://mail.example/events")
        self.fails(404, "not-found", intruder.delete_dead, {"all": True})
        self.fails(404, "not-found", intruder.skip_object, "work:1", "greet")
        self.fails(404, "not-found", intruder.set_cron, "report", expression="@yearly")
        listings: tuple[Callable[[], object], ...] = (
            intruder.handlers,
            intruder.dead_events,
            intruder.statistics,
            intruder.events,
            intruder.count_events,
            intruder.ended_events,
            intruder.batches,
            intruder.operations,
            intruder.limits,
            intruder.switches,
            intruder.targets,
            intruder.programs,
            intruder.error_groups,
            intruder.halted_objects,
            intruder.crons,
        )
        for listing in listings:
            self.fails(404, "not-found", listing)
        self.assertEqual(self.wakeq.explain(id)["state"], "delayed")
        self.wakeq.cancel(id)

    def test_what_the_service_refuses_is_told_apart(self) -> None:
        wakeq = self.wakeq
        wrong = KEY[:-1] + ("1" if KEY.endswith("0") else "0")
        self.fails(401, "unauthenticated", client(key=wrong).handlers)
        self.fails(401, "unauthenticated", client(key=lambda: "no-key-at-all").handlers)
        self.fails(404, "not-found", wakeq.explain, NOBODY)
        self.fails(404, "not-found", wakeq.redrive_one, NOBODY)
        self.fails(400, "bad-request", wakeq.explain, "not a/uuid?")
        self.fails(400, "bad-request", wakeq.emit, {"name": "no blanks"})
        self.fails(400, "bad-request", wakeq.emit, {"name": "greet", "nmae": 1})
        self.fails(413, "too-large", wakeq.emit, {"name": "greet", "value": "x" * 300_000})
        self.fails(400, "bad-request", wakeq.emit_all, [])
        self.fails(400, "bad-request", wakeq.redrive, {})
        self.fails(400, "bad-request", wakeq.dead_events, limit=0)
        self.fails(404, "not-found", wakeq.request, "GET", "/v2")
