"""Crons, against a real service. Another tenant has a cron of the same name."""

from __future__ import annotations

import uuid
from typing import Callable

from .service import ServiceTestCase, fresh_name, needs_service, other


@needs_service
class Crons(ServiceTestCase):
    def test_a_cron_is_set_listed_run_now_paused_and_removed(self) -> None:
        wakeq, theirs, name = self.wakeq, other(), fresh_name()
        second = f"{name}.2"
        made = wakeq.set_cron(name, expression="30 8 1 1 *", zone="Europe/Berlin", value={"to": "Ada"})
        self.assertEqual((made["name"], made["zone"], made["missed"]), (name, "Europe/Berlin", "skip"))
        self.assertEqual(len(made["next"]), 5)
        theirs.set_cron(name, expression="@yearly", value="theirs")
        wakeq.set_cron(second, expression="@yearly", missed="once")
        self.assertEqual(wakeq.cron(name).get("value"), {"to": "Ada"})
        names = [cron["name"] for cron in wakeq.each_cron(limit=1)]
        self.assertEqual([of for of in names if of.startswith(name)], [name, second])
        page = wakeq.crons(limit=1)
        self.assertEqual(len(page["items"]), 1)
        foreign = theirs.crons(cursor=page.get("next_cursor"))["items"]
        self.assertNotIn(second, [cron["name"] for cron in foreign])

        key = str(uuid.uuid4())
        id = wakeq.run_cron(name, idempotency_key=key)["id"]
        self.assertEqual(wakeq.run_cron(name, idempotency_key=key)["id"], id)
        event = wakeq.event(id)
        shown = (event.get("module"), event.get("name"), event.get("value"))
        self.assertEqual(shown, ("CRON", name, {"to": "Ada"}))
        self.fails(404, "not-found", theirs.event, id)
        wakeq.purge(name, module="CRON")

        paused = wakeq.pause_cron(name, reason="the warehouse moves")
        pause = paused.get("paused")
        self.assertEqual((pause and pause.get("reason"), paused["next"]), ("the warehouse moves", []))
        self.assertIsNone(theirs.cron(name).get("paused"))
        self.assertIsNone(wakeq.unpause_cron(name).get("paused"))
        calls: tuple[Callable[..., object], ...] = (
            theirs.cron,
            theirs.run_cron,
            theirs.pause_cron,
            theirs.unpause_cron,
            theirs.remove_cron,
        )
        for call in calls:
            self.fails(404, "not-found", call, second)
        self.fails(400, "bad-request", wakeq.set_cron, name, expression="every day")
        wakeq.remove_cron(name)
        wakeq.remove_cron(second)
        self.fails(404, "not-found", wakeq.cron, name)
        self.assertEqual(theirs.cron(name).get("value"), "theirs")
        theirs.remove_cron(name)
