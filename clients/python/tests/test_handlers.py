"""Calls about a handler and what failed of it, against a real service. Another tenant has a handler
of the same name, with events and objects of its own."""

from __future__ import annotations

import uuid

from wakeq.schema import NewEvent

from .service import ServiceTestCase, fresh_name, ids, leased, needs_service, other, release


@needs_service
class Handlers(ServiceTestCase):
    def test_an_event_is_run_now_counted_as_due_and_purged(self) -> None:
        wakeq, theirs, name = self.wakeq, other(), fresh_name()
        for tenant in (wakeq, theirs):
            tenant.pull(name)
            tenant.emit_all([{"name": name, "value": value, "delay_s": 3600} for value in (1, 2)])
        first, second = (event["id"] for event in wakeq.each_event(name=name))
        depth = wakeq.depth(name)
        self.assertEqual((depth["depth"], depth["capped"]), (0, False))
        self.fails(404, "not-found", theirs.run_now, first)
        self.assertEqual(wakeq.run_now(first), {"id": first})
        states = [wakeq.explain(id)["state"] for id in (first, second)]
        self.assertEqual(states, ["ready", "delayed"])
        self.assertEqual(wakeq.depth(name, module="WORKER")["depth"], 1)
        self.assertGreaterEqual(wakeq.depth()["depth"], 1)
        self.assertEqual(theirs.depth(name)["depth"], 0)
        handler = wakeq.handler(name)
        self.assertEqual((handler["waiting"], handler["delayed"], handler["rules"]), (1, 1, []))
        self.assertEqual(theirs.handler(name)["delayed"], 2)
        self.assertEqual(wakeq.handler(fresh_name())["delayed"], 0)

        self.assertEqual(wakeq.purge(name, dry_run=True)["purged"], 2)
        purged = wakeq.purge(name)
        self.assertEqual((purged["purged"], purged["more"]), (2, False))
        self.fails(404, "not-found", wakeq.run_now, first)
        self.assertEqual(theirs.count_events(name=name)["count"], 2)
        self.assertEqual(theirs.purge(name)["purged"], 2)
        for tenant in (wakeq, theirs):
            tenant.unpull(name)

    def test_the_last_attempts_of_a_handler_are_shown_and_the_programs_that_made_them(self) -> None:
        wakeq, theirs, name, worker = self.wakeq, other(), fresh_name(), f"mailer-{uuid.uuid4()}"
        [event] = leased(wakeq, {"name": name}, worker=worker)
        release(wakeq, event, error="no such user", dead=True)
        last = wakeq.attempts(name, limit=10)
        told = [(one["event"], one["outcome"], one.get("error"), one.get("worker")) for one in last["attempts"]]
        self.assertEqual((told, last["more"]), ([(event["id"], "dead", "no such user", worker)], False))
        of_event = [(one["number"], one.get("error")) for one in wakeq.explain(event["id"]).get("attempts", [])]
        self.assertEqual(of_event, [(1, "no such user")])
        self.assertEqual(wakeq.attempts(name, modifier="loud")["attempts"], [])
        self.assertEqual(theirs.attempts(name)["attempts"], [])

        programs = [(program["worker"], program["name"]) for program in wakeq.each_program(limit=1)]
        self.assertIn((worker, name), programs)
        cursor = wakeq.programs(limit=1).get("next_cursor")
        foreign = [*theirs.each_program(), *theirs.programs(cursor=cursor)["items"]]
        self.assertNotIn(worker, [program["worker"] for program in foreign])
        wakeq.delete_dead({"name": name})
        wakeq.unpull(name)

    def test_dead_events_are_grouped_marked_as_known_and_deleted(self) -> None:
        wakeq, theirs, name = self.wakeq, other(), fresh_name()
        errors = ("no answer after 3s", "no answer after 7s", "no such user")
        for event, error in zip(leased(wakeq, {"name": name}, count=3), errors):
            release(wakeq, event, error=error, dead=True)
        page = wakeq.error_groups(name=name, limit=1)
        [silence] = page["items"]
        self.assertEqual((silence["fingerprint"], silence["count"]), ("no answer after #", 2))
        self.assertEqual(page["looked_at"], 3)
        group = silence["id"]
        groups = ids(wakeq.each_error_group(name=name, limit=1))
        self.assertEqual((len(groups), groups[0]), (2, group))
        self.assertEqual(wakeq.error_group(group)["count"], 2)
        self.assertEqual(len(ids(wakeq.each_dead_event(error_group=group))), 2)

        known = wakeq.know_error(group, note="ticket 17")
        self.assertEqual((known.get("note"), known["by"][:4]), ("ticket 17", "key:"))
        self.assertEqual(wakeq.error_group(group).get("known"), known)
        self.assertEqual(ids(wakeq.each_error_group(name=name, known=True)), [group])
        self.assertEqual(ids(wakeq.each_error_group(name=name, known=False, order="last_died")), groups[1:])
        self.assertEqual(ids(theirs.each_error_group(name=name)), [])
        self.assertEqual(ids(theirs.each_error_group(name=name, cursor=page.get("next_cursor"))), [])
        self.fails(404, "not-found", theirs.error_group, group)
        self.fails(404, "not-found", theirs.know_error, group)
        self.fails(404, "not-found", theirs.forget_error, group)
        wakeq.forget_error(group)
        self.assertIsNone(wakeq.error_group(group).get("known"))

        self.assertEqual(theirs.delete_dead({"name": name})["deleted"], 0)
        self.assertEqual(wakeq.delete_dead({"name": name, "dry_run": True})["deleted"], 3)
        deleted = wakeq.delete_dead({"name": name})
        self.assertEqual((deleted["deleted"], deleted["more"]), (3, False))
        self.fails(400, "bad-request", wakeq.delete_dead, {})
        self.fails(404, "not-found", wakeq.error_group, group)
        wakeq.unpull(name)

    def test_an_object_that_is_halted_is_listed_and_resumed_without_its_dead_event(self) -> None:
        wakeq, theirs, name = self.wakeq, other(), fresh_name()
        object = f"work:{name}"
        on_object: NewEvent = {"name": name, "object": object}
        [event] = leased(wakeq, on_object, on_death="halt")
        id = wakeq.emit(on_object)["id"]
        foreign = theirs.emit({"name": name, "object": object, "delay_s": 3600})["id"]
        release(wakeq, event, error="no such work", dead=True)
        self.assertEqual(wakeq.explain(id)["state"], "halted")
        halted = wakeq.each_halted_object(object=object, limit=1)
        lanes = [(lane["object"], lane["name"], lane["event"]) for lane in halted]
        self.assertEqual(lanes, [(object, name, event["id"])])
        page = wakeq.halted_objects(limit=1)
        self.assertEqual(len(page["items"]), 1)
        self.assertEqual(theirs.halted_objects(object=object)["items"], [])
        others = theirs.each_halted_object(cursor=page.get("next_cursor"))
        self.assertNotIn(object, [lane["object"] for lane in others])
        self.assertEqual(theirs.skip_object(object, name), {"skipped": False})
        self.assertEqual(wakeq.skip_object(object, name), {"skipped": True})
        self.assertEqual(wakeq.halted_objects(object=object)["items"], [])
        self.assertEqual(wakeq.explain(id)["state"], "ready")
        wakeq.purge(name)
        wakeq.delete_dead({"name": name})
        wakeq.unpull(name)
        theirs.cancel(foreign)
