"""Calls about many events, limits, workers and queues, against a real service. Another tenant has
events with the same names, tags, batches and limits."""

from __future__ import annotations

import unittest
import uuid

from wakeq import Client
from wakeq.schema import NewBatchEnd, NewEvent, NewOperation, Operation, Rate

from .service import (
    QUEUE,
    WIDE_KEY,
    ServiceTestCase,
    client,
    fresh_name,
    ids,
    leased,
    needs_service,
    other,
    release,
    until,
)

@needs_service
class Operating(ServiceTestCase):
    def test_events_are_found_by_tags_and_values_and_given_others(self) -> None:
        wakeq, theirs, name, tag = self.wakeq, other(), fresh_name(), f"t:{uuid.uuid4()}"
        events: list[NewEvent] = [
            {"name": name, "value": {"n": n}, "delay_s": 3600 * n, "options": {"tags": [tag, f"n:{n}"]}}
            for n in (1, 2, 3)
        ]
        mine = [one["id"] for one in wakeq.emit_all(events)]
        foreign = theirs.emit_all(events[:1])[0]["id"]

        self.assertEqual(ids(wakeq.each_event(tag=tag, limit=1)), mine)
        self.assertEqual(ids(wakeq.each_event(name=name)), mine)
        self.assertEqual(ids(wakeq.each_event(tag=[tag, "n:1"], state=["ready", "delayed"])), mine[:1])
        self.assertEqual(ids(wakeq.each_event(tag=[tag, "n:1", "n:2"], state=[])), [])
        self.assertEqual(ids(theirs.each_event(tag=tag)), [foreign])
        page = wakeq.events(tag=tag, limit=2)
        self.assertEqual(ids(page["items"]), mine[:2])
        self.assertIn(tag, page["items"][0].get("tags", []))
        self.assertEqual(ids(wakeq.each_event(tag=tag, cursor=page.get("next_cursor"))), mine[2:])
        self.assertEqual(ids(theirs.each_event(tag=tag, cursor=page.get("next_cursor"))), [])
        count = wakeq.count_events(tag=tag, value="$.n = 2")
        self.assertEqual((count["count"], count.get("next_cursor")), (1, None))
        self.assertEqual(theirs.count_events(tag=tag)["count"], 1)
        self.fails(400, "bad-request", wakeq.events, tag="a,,b")

        self.assertEqual(wakeq.set_tags(mine[0], ["late"]), {"id": mine[0]})
        self.assertEqual(wakeq.count_events(tag=tag)["count"], 2)
        due = wakeq.set_due(mine[1], delay_s=60)
        self.assertEqual((due["id"], due["delay_until"]), (mine[1], wakeq.explain(mine[1]).get("delay_until")))
        self.fails(404, "not-found", theirs.set_tags, mine[0], [])
        self.fails(404, "not-found", theirs.set_due, mine[1], delay_s=1)
        self.fails(400, "bad-request", wakeq.set_tags, mine[0], ["a,b"])
        for id in mine:
            wakeq.cancel(id)
        theirs.cancel(foreign)

    def test_events_are_kept_after_their_end_and_listed(self) -> None:
        wakeq, theirs, name = self.wakeq, other(), fresh_name()
        kept: NewEvent = {"name": name, "delay_s": 3600, "options": {"keep_s": 3600}}
        tagged: NewEvent = {"name": name, "delay_s": 3600, "options": {"keep_s": 3600, "tags": ["late", "vip"]}}
        first, second = wakeq.emit(kept)["id"], wakeq.emit(tagged)["id"]
        wakeq.cancel(first)
        wakeq.cancel(second)
        page = wakeq.ended_events(name=name, limit=1)
        self.assertEqual([(one["id"], one["outcome"]) for one in page["items"]], [(second, "cancelled")])
        self.assertEqual(ids(wakeq.each_ended_event(name=name, limit=1)), [second, first])
        self.assertEqual(ids(wakeq.each_ended_event(name=name, outcome="failed")), [])
        self.assertEqual(ids(wakeq.each_ended_event(name=name, tag=["late", "vip"])), [second])
        self.assertEqual(wakeq.count_ended_events(name=name)["count"], 2)
        self.assertEqual(wakeq.count_ended_events(name=name, tag="vip", outcome="cancelled")["count"], 1)
        self.assertEqual(theirs.count_ended_events(name=name)["count"], 0)
        self.assertEqual(ids(theirs.each_ended_event(name=name, cursor=page.get("next_cursor"))), [])
        self.assertEqual(ids(theirs.each_ended_event(name=name)), [])
        self.assertEqual(wakeq.explain(first)["state"], "cancelled")
        self.fails(404, "not-found", theirs.explain, first)

    def test_dead_events_are_found_by_tags_and_errors(self) -> None:
        wakeq, theirs, name, tag = self.wakeq, other(), fresh_name(), f"t:{uuid.uuid4()}"
        events = leased(wakeq, {"name": name, "options": {"tags": [tag]}}, count=2)
        for event in events:
            release(wakeq, event, error="no such user", dead=True)
        dead = [event["id"] for event in reversed(events)]
        waiting = theirs.emit({"name": name, "delay_s": 3600, "options": {"tags": [tag]}})["id"]
        page = wakeq.dead_events(tag=[tag], error_text="such", limit=1)
        self.assertEqual([(one["id"], one["cause"]) for one in page["items"]], [(dead[0], "rejected")])
        self.assertEqual(ids(wakeq.each_dead_event(tag=[tag], error_text="such", limit=1)), dead)
        self.assertEqual(ids(theirs.each_dead_event(tag=tag)), [])
        self.assertEqual(ids(theirs.each_dead_event(tag=tag, cursor=page.get("next_cursor"))), [])
        self.assertEqual(ids(wakeq.each_dead_event(tag=tag, error_text="route")), [])
        self.assertEqual(wakeq.count_events(tag=tag, state="dead")["count"], 2)
        self.assertEqual(theirs.count_events(tag=tag, state="dead")["count"], 0)
        self.assertEqual(wakeq.redrive({"name": name})["redriven"], 2)
        wakeq.unpull(name)
        for id in dead:
            wakeq.cancel(id)
        theirs.cancel(waiting)

    def test_a_batch_is_opened_closed_listed_and_given_up(self) -> None:
        wakeq, theirs, name = self.wakeq, other(), fresh_name()
        batch = f"import:{name}"
        on_end: NewBatchEnd = {"name": name, "value": "a.csv"}
        opened = wakeq.open_batch(batch, on_end)
        self.assertEqual((opened["name"], opened["state"], opened.get("left")), (batch, "open", 0))
        self.fails(409, "conflict", wakeq.open_batch, batch, {"name": name, "value": "b.csv"})
        id = wakeq.emit({"name": name, "batch": batch, "delay_s": 3600})["id"]
        self.assertEqual(ids(wakeq.each_event(batch=batch)), [id])
        for call in (theirs.batch, theirs.close_batch, theirs.cancel_batch):
            self.fails(404, "not-found", call, batch)
        closed = wakeq.close_batch(batch)
        self.assertEqual((closed["state"], closed.get("left")), ("closed", 1))
        wakeq.cancel(id)
        ended = wakeq.batch(batch)
        counts = ended.get("counts")
        self.assertEqual((ended["state"], counts and counts["cancelled"]), ("ended", 1))
        self.assertEqual(ended["on_end"], opened["on_end"])
        wakeq.cancel(ended["on_end"]["id"])

        wakeq.open_batch(f"{batch}/2", on_end)
        wakeq.cancel_batch(f"{batch}/2")
        theirs.open_batch(f"{batch}/3", on_end)
        listed = [one["state"] for one in wakeq.each_batch(limit=1) if one["name"].startswith(batch)]
        self.assertEqual(listed, ["ended", "cancelled"])
        page = wakeq.batches(limit=1)
        self.assertEqual(len(page["items"]), 1)
        foreign = [one["name"] for one in theirs.batches(cursor=page.get("next_cursor"))["items"]]
        self.assertFalse({batch, f"{batch}/2"} & set(foreign), foreign)
        theirs.cancel_batch(f"{batch}/3")

    def test_many_events_are_changed_by_an_operation(self) -> None:
        wakeq, theirs, name = self.wakeq, other(), fresh_name()
        for tenant in (wakeq, theirs):
            tenant.emit_all([{"name": name, "value": value, "delay_s": 3600} for value in (1, 2, 3)])
        preview = wakeq.preview_operation({"kind": "delete", "filter": {"name": name}})
        self.assertEqual((preview["count"], preview["more"]), (3, False))
        deletion: NewOperation = {"kind": "delete", "filter": {"name": name}, "before": preview["before"]}
        key = str(uuid.uuid4())
        id = wakeq.begin_operation(deletion, idempotency_key=key)["id"]
        self.assertEqual(wakeq.begin_operation(deletion, idempotency_key=key)["id"], id)

        def ended(tenant: Client, id: str) -> Operation | None:
            operation = tenant.operation(id)
            return None if operation["state"] == "open" else operation

        operation = until(lambda: ended(wakeq, id))
        self.assertEqual((operation["state"], operation["kind"], operation["changed"]), ("done", "delete", 3))
        self.assertEqual(wakeq.count_events(name=name)["count"], 0)
        self.assertEqual(theirs.count_events(name=name)["count"], 3)
        self.assertEqual(wakeq.cancel_operation(id)["state"], "done")
        self.fails(404, "not-found", theirs.operation, id)
        self.fails(404, "not-found", theirs.cancel_operation, id)
        self.fails(400, "bad-request", wakeq.begin_operation, {"kind": "delete"})

        own = theirs.begin_operation({"kind": "delete", "filter": {"name": name}})["id"]
        until(lambda: ended(theirs, own))
        self.assertIn(id, ids(wakeq.each_operation(limit=1)))
        self.assertNotIn(id, ids(theirs.each_operation()))
        page = wakeq.operations(limit=1)
        self.assertEqual(len(page["items"]), 1)
        self.assertNotIn(id, ids(theirs.each_operation(cursor=page.get("next_cursor"))))

    def test_a_limit_is_set_used_listed_and_removed(self) -> None:
        wakeq, theirs, name = self.wakeq, other(), fresh_name()
        key = f"{name}:7"
        rate: Rate = {"count": 100, "period_s": 60, "burst": 10}
        answer = wakeq.set_limit(name, concurrency=5, rate=rate)
        self.assertEqual(
            (answer["new"], answer["limit"].get("concurrency"), answer["limit"].get("rate")), (True, 5, rate)
        )
        self.assertFalse(wakeq.set_limit(name, concurrency=2)["new"])
        wakeq.set_limit(key, concurrency=1)
        theirs.set_limit(name, concurrency=9)
        shown = (wakeq.limit(name).get("concurrency"), theirs.limit(name).get("concurrency"))
        self.assertEqual(shown, (2, 9))
        names = [limit["name"] for limit in wakeq.each_limit(limit=1)]
        self.assertEqual([of for of in names if of.startswith(name)], [name, key])
        cursor = wakeq.limits(limit=1).get("next_cursor")
        self.assertNotIn(key, [limit["name"] for limit in theirs.limits(cursor=cursor)["items"]])

        event = leased(wakeq, {"name": name, "options": {"limits": [key]}})[0]
        uses = [(use["name"], use["running"], use["holders"]) for use in wakeq.limit_uses(key)["items"]]
        self.assertEqual(uses, [(key, 1, [event["id"]])])
        self.assertEqual(theirs.limit_uses(key)["items"], [])
        release(wakeq, event)
        wakeq.cancel(event["id"])
        wakeq.unpull(name)
        self.assertEqual([use for use in wakeq.each_limit_use(key) if use["running"] > 0], [])

        self.fails(404, "not-found", theirs.limit, key)
        self.fails(404, "not-found", theirs.remove_limit, key)
        wakeq.remove_limit(key)
        wakeq.remove_limit(name)
        self.fails(404, "not-found", wakeq.limit, name)
        self.assertEqual(theirs.limit(name).get("concurrency"), 9)
        theirs.remove_limit(name)

    @unittest.skipUnless(WIDE_KEY, "WAKEQ_WIDE_KEY is of every canvas")
    def test_a_key_of_every_canvas_sees_the_workers(self) -> None:
        wide = client(key=WIDE_KEY)
        first = wide.workers(limit=1)["items"][0]
        self.assertIn(first["instance"], [worker["instance"] for worker in wide.each_worker(limit=1)])
        shown = wide.worker(first["name"], instance=first["instance"])["worker"]
        self.assertEqual((shown["name"], shown["instance"]), (first["name"], first["instance"]))
        self.assertEqual(wide.worker(first["name"])["worker"]["name"], first["name"])
        self.fails(404, "not-found", wide.worker, fresh_name())
        self.fails(403, "forbidden", self.wakeq.workers)
        self.fails(403, "forbidden", self.wakeq.worker, first["name"])
        self.fails(403, "forbidden", other().workers)

    @unittest.skipUnless(WIDE_KEY, "WAKEQ_WIDE_KEY is of every canvas")
    def test_a_key_of_every_canvas_sees_the_depth_of_all(self) -> None:
        wide, name = client(key=WIDE_KEY), fresh_name()
        self.assertEqual(wide.total_depth(name)["depth"], 0)
        for tenant in (self.wakeq, other()):
            tenant.pull(name)
            tenant.emit({"name": name})
        depth = wide.total_depth(name, module="WORKER")
        self.assertEqual((depth["depth"], depth["capped"]), (2, False))
        self.fails(403, "forbidden", self.wakeq.total_depth)
        self.fails(403, "forbidden", other().total_depth)
        for tenant in (self.wakeq, other()):
            self.assertEqual(tenant.purge(name)["purged"], 1)
            tenant.unpull(name)

    @unittest.skipUnless(WIDE_KEY and QUEUE, "WAKEQ_WIDE_KEY is of every canvas, and WAKEQ_QUEUE is a queue")
    def test_a_queue_is_listed_with_its_depth(self) -> None:
        wide = client(key=WIDE_KEY)
        self.assertIn(QUEUE, [queue["name"] for queue in wide.each_queue(limit=1)])
        self.assertEqual(len(wide.queues(limit=1)["items"]), 1)
        before = wide.queue_depth(QUEUE)["depth"]
        for tenant in (self.wakeq, other()):
            tenant.emit({"name": QUEUE, "only_queues": True})
        depth = wide.queue_depth(QUEUE)
        self.assertEqual((depth["depth"], depth["capped"]), (before + 2, False))
        self.fails(404, "not-found", wide.queue_depth, fresh_name())
        for tenant in (self.wakeq, other()):
            self.fails(403, "forbidden", tenant.queues)
            self.fails(403, "forbidden", tenant.queue_depth, QUEUE)
