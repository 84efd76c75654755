// Calls about a handler and what failed of it, against a real service. Another tenant has a handler
// of the same name, with events and objects of its own.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { client, fails, freshName, idsOf, leased, other, skip } from "./service.js";

test("an event is run now, counted as due, and purged", { skip }, async () => {
  const [wakeq, theirs, name] = [client(), other(), freshName()];
  for (const tenant of [wakeq, theirs]) {
    await tenant.pull(name);
    await tenant.emitAll([1, 2].map((value) => ({ name, value, delay_s: 3600 })));
  }
  const [first = "", second = ""] = await idsOf(wakeq.eachEvent({ name }));
  assert.deepEqual(await wakeq.depth({ name }).then(({ depth, capped }) => [depth, capped]), [0, false]);
  await fails(theirs.runNow(first), 404, "not-found");
  assert.deepEqual(await wakeq.runNow(first), { id: first });
  assert.deepEqual([(await wakeq.explain(first)).state, (await wakeq.explain(second)).state], ["ready", "delayed"]);
  assert.equal((await wakeq.depth({ name })).depth, 1);
  assert.ok((await wakeq.depth()).depth >= 1);
  assert.equal((await theirs.depth({ name })).depth, 0);
  const { waiting, delayed, rules } = await wakeq.handler(name);
  assert.deepEqual([waiting, delayed, rules], [1, 1, []]);
  assert.equal((await theirs.handler(name)).delayed, 2);
  assert.equal((await wakeq.handler(freshName())).delayed, 0);

  assert.equal((await wakeq.purge(name, { dry_run: true })).purged, 2);
  assert.deepEqual(await wakeq.purge(name).then(({ purged, more }) => [purged, more]), [2, false]);
  await fails(wakeq.runNow(first), 404, "not-found");
  assert.equal((await theirs.countEvents({ name })).count, 2);
  assert.equal((await theirs.purge(name)).purged, 2);
  for (const tenant of [wakeq, theirs]) await tenant.unpull(name);
});

test("the last attempts of a handler are shown, and the programs that made them", { skip }, async () => {
  const [wakeq, theirs, name, worker] = [client(), other(), freshName(), `mailer-${randomUUID()}`];
  const [event] = await leased(wakeq, name, { value: 1 }, { worker });
  await event?.release("no such user");
  const { attempts, more } = await wakeq.attempts(name, { limit: 10 });
  const told = attempts.map((attempt) => [attempt.event, attempt.outcome, attempt.error, attempt.worker]);
  assert.deepEqual([told, more], [[[event?.id, "dead", "no such user", worker]], false]);
  const { attempts: ofEvent = [] } = await wakeq.explain(event?.id ?? "");
  assert.deepEqual(ofEvent.map(({ number, error }) => [number, error]), [[1, "no such user"]]);
  assert.deepEqual((await wakeq.attempts(name, { modifier: "loud" })).attempts, []);
  assert.deepEqual((await theirs.attempts(name)).attempts, []);

  const programs = [];
  for await (const program of wakeq.eachProgram({ limit: 1 })) programs.push([program.worker, program.name]);
  assert.ok(programs.some(([of, at]) => of === worker && at === name), String(programs));
  for await (const program of theirs.eachProgram()) assert.notEqual(program.worker, worker);
  const cursor = (await wakeq.programs({ limit: 1 })).next_cursor ?? undefined;
  for (const program of (await theirs.programs({ cursor })).items) assert.notEqual(program.worker, worker);
  await wakeq.deleteDead({ name });
  await wakeq.unpull(name);
});

test("dead events are grouped, marked as known, and deleted", { skip }, async () => {
  const [wakeq, theirs, name] = [client(), other(), freshName()];
  const events = await leased(wakeq, name, {}, { count: 3 });
  const errors = ["no answer after 3s", "no answer after 7s", "no such user"];
  for (const [at, { release }] of events.entries()) await release(errors[at]);
  const page = await wakeq.errorGroups({ name, limit: 1 });
  const [silence] = page.items;
  assert.deepEqual([silence?.fingerprint, silence?.count, page.looked_at], ["no answer after #", 2, 3]);
  const group = silence?.id ?? "";
  const ids = await idsOf(wakeq.eachErrorGroup({ name, limit: 1 }));
  assert.deepEqual([ids.length, ids[0]], [2, group]);
  assert.equal((await wakeq.errorGroup(group)).count, 2);
  assert.equal((await idsOf(wakeq.eachDeadEvent({ error_group: group }))).length, 2);

  const { note, by } = await wakeq.knowError(group, { note: "ticket 17" });
  assert.deepEqual([note, (await wakeq.errorGroup(group)).known?.note], ["ticket 17", "ticket 17"]);
  assert.match(by, /^key:/);
  assert.deepEqual(await idsOf(wakeq.eachErrorGroup({ name, known: true })), [group]);
  assert.deepEqual(await idsOf(wakeq.eachErrorGroup({ name, known: false })), ids.slice(1));
  const cursor = page.next_cursor ?? undefined;
  for (const filter of [{ name }, { name, cursor }]) assert.deepEqual(await idsOf(theirs.eachErrorGroup(filter)), []);
  const calls = [() => theirs.errorGroup(group), () => theirs.knowError(group), () => theirs.forgetError(group)];
  for (const call of calls) await fails(call, 404, "not-found");
  assert.equal(await wakeq.forgetError(group), undefined);
  assert.equal((await wakeq.errorGroup(group)).known ?? null, null);

  assert.equal((await theirs.deleteDead({ name })).deleted, 0);
  assert.equal((await wakeq.deleteDead({ name, dry_run: true })).deleted, 3);
  assert.deepEqual(await wakeq.deleteDead({ name }).then(({ deleted, more }) => [deleted, more]), [3, false]);
  await fails(wakeq.deleteDead({}), 400, "bad-request");
  await fails(wakeq.errorGroup(group), 404, "not-found");
  await wakeq.unpull(name);
});

test("an object that is halted is listed, and resumed without its dead event", { skip }, async () => {
  const [wakeq, theirs, name] = [client(), other(), freshName()];
  const object = `work:${name}`;
  const [event] = await leased(wakeq, name, { object }, { on_death: "halt" });
  const { id } = await wakeq.emit({ name, object });
  const foreign = await theirs.emit({ name, object, delay_s: 3600 });
  await event?.release("no such work");
  assert.equal((await wakeq.explain(id)).state, "halted");
  const halted = [];
  for await (const lane of wakeq.eachHaltedObject({ object, limit: 1 })) halted.push(lane);
  assert.deepEqual(halted.map((lane) => [lane.object, lane.name, lane.event]), [[object, name, event?.id]]);
  const page = await wakeq.haltedObjects({ limit: 1 });
  assert.equal(page.items.length, 1);
  for (const filter of [{ object }, page.next_cursor ? { cursor: page.next_cursor } : {}]) {
    for await (const lane of theirs.eachHaltedObject(filter)) assert.notEqual(lane.object, object);
  }
  assert.deepEqual(await theirs.skipObject(object, name), { skipped: false });
  assert.deepEqual(await wakeq.skipObject(object, name), { skipped: true });
  assert.deepEqual((await wakeq.haltedObjects({ object })).items, []);
  assert.equal((await wakeq.explain(id)).state, "ready");
  await wakeq.purge(name);
  await wakeq.deleteDead({ name });
  await wakeq.unpull(name);
  await theirs.cancel(foreign.id);
});
