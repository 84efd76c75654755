// Each call against a real service, whose worker may call this machine: WAKEQ_SERVER, WAKEQ_KEY (on
// the nil canvas), WAKEQ_OTHER_KEY and WAKEQ_ADMIN_KEY (on the canvas of another tenant).

import assert from "node:assert/strict";
import { test } from "node:test";
import { verify } from "wakeq";
import { adminKey, client, fails, freshName, key, otherCanvas, otherKey, serving, skip, until } from "./service.js";

const NOBODY = "01a1fa2a-7101-7382-922f-e03ca3c19953";

test("an event is emitted, explained, read and cancelled", { skip }, async () => {
  const [wakeq, name] = [client(), freshName()];
  const { id, duplicate } = await wakeq.emit({ name, value: { to: "Ada", é: [1.5, null] }, delay_s: 3600 });
  assert.equal(duplicate, false);
  const explained = await wakeq.explain(id);
  assert.deepEqual([explained.id, explained.state, explained.name], [id, "delayed", name]);
  assert.ok(explained.next && explained.value === undefined);
  assert.deepEqual((await wakeq.event(id)).value, { to: "Ada", é: [1.5, null] });
  assert.deepEqual(await wakeq.cancel(id), { id });
  for (const call of [() => wakeq.event(id), () => wakeq.explain(id), () => wakeq.cancel(id)]) {
    await fails(call, 404, "not-found");
  }
  const waiting = await wakeq.emit({ name, delay_s: 3600 });
  assert.deepEqual(await wakeq.cancel(waiting.id, { running: true }), { id: waiting.id });
});

test("an answer says what became of a unique key", { skip }, async () => {
  const [wakeq, name] = [client(), freshName()];
  const event = { name, delay_s: 3600 };
  const emit = (/** @type {any} */ unique) => wakeq.emit({ ...event, unique: { key: "k", ...unique } });
  const first = await emit({});
  assert.equal(first.outcome, "inserted");
  assert.deepEqual(await emit({ until: "ended" }), { ...first, outcome: "kept" });
  assert.deepEqual(await emit({ on_conflict: "replace" }), { ...first, outcome: "replaced" });
  const postponed = await emit({ on_conflict: "postpone", postpone_s: 7200, at_most_s: 7200 });
  assert.deepEqual([postponed.id, postponed.outcome], [first.id, "postponed"]);
  const shown = await wakeq.event(first.id);
  assert.deepEqual([shown.unique_key, shown.delay_until], ["k", postponed.due]);
  await wakeq.cancel(first.id);
});

test("only an attempt that runs leaves a checkpoint", { skip }, async () => {
  const [wakeq, other] = [client(), client({ key: otherKey, canvas: otherCanvas })];
  const [{ id }, claim] = [await wakeq.emit({ name: freshName(), delay_s: 3600 }), "0000000137ab6c1c"];
  await fails(wakeq.checkpoint(id), 404, "not-found");
  await fails(wakeq.storeCheckpoint(id, claim, { page: 7 }), 410, "lease-over");
  await fails(wakeq.storeCheckpoint(id, "none", { page: 7 }), 400, "bad-request");
  await fails(other.storeCheckpoint(id, claim, { page: 7 }), 404, "not-found");
  await fails(other.checkpoint(id), 404, "not-found");
  await wakeq.cancel(id);
});

test("an event shows what it asks for", { skip }, async () => {
  const [wakeq, name] = [client(), freshName()];
  const options = { retries: 7, delays_s: [1, 60.5], timeout_s: 30, limits: ["customer:7"], urgent: true };
  const { id } = await wakeq.emit({ name, delay_s: 3600, options });
  assert.deepEqual((await wakeq.event(id)).options, options);
  await fails(() => wakeq.emit({ name, options: { retries: 1001 } }), 400, "bad-request");
  await fails(() => wakeq.emit({ name, options: { limits: ["canvas"] } }), 400, "bad-request");
  await wakeq.cancel(id);
});

test("a batch is emitted, all or none", { skip }, async () => {
  const [wakeq, name] = [client(), freshName()];
  const events = [1, 2, 3].map((value) => ({ name, value, delay_s: 3600 }));
  const emitted = await wakeq.emitAll(events);
  assert.equal(new Set(emitted.map(({ id }) => id)).size, 3);
  assert.equal((await wakeq.event(/** @type {any} */ (emitted[2]).id)).value, 3);
  await fails(wakeq.emitAll([...events, { name: "no blanks" }]), 400, "bad-request");
  const listed = await wakeq.request("GET", "/v1/canvases/{canvas}/events", { query: { name, limit: 100 } });
  assert.equal(listed.items.length, 3);
  const purge = { path: { module: "WORKER", name }, body: {} };
  await wakeq.request("POST", "/v1/canvases/{canvas}/handlers/{module}/{name}/purge", purge);
});

test("a handler is paused on its canvas only, and unpaused", { skip }, async () => {
  const [wakeq, other, name] = [client(), client({ key: otherKey, canvas: otherCanvas }), freshName()];
  const paused = await wakeq.pause(name, { reason: "mail server down", for_s: 600 });
  assert.deepEqual([paused.new, paused.rule.kind, paused.rule.reason], [true, "pause", "mail server down"]);
  const { id } = await wakeq.emit({ name });
  assert.equal((await wakeq.explain(id)).rule?.reason, "mail server down");
  const listed = (await wakeq.handlers()).find((handler) => handler.name === name);
  assert.equal(listed?.paused, 1);
  assert.equal((await other.handlers()).some((handler) => handler.name === name), false);
  assert.equal((await other.unpause(name)).lifted, false);
  await wakeq.cancel(id);
  assert.deepEqual([(await wakeq.unpause(name)).lifted, (await wakeq.unpause(name)).lifted], [true, false]);
});

test("a whole canvas is paused, and no other", { skip }, async () => {
  const [wakeq, other, name] = [client(), client({ key: otherKey, canvas: otherCanvas }), freshName()];
  const paused = await other.pauseCanvas({ reason: "wrong prices", for_s: 600 });
  assert.deepEqual([paused.rule.kind, paused.rule.stops], ["pause", "canvas"]);
  const [held, free] = [await other.emit({ name }), await wakeq.emit({ name })];
  assert.equal((await other.explain(held.id)).rule?.stops, "canvas");
  assert.deepEqual((await other.switches()).map(({ kind, reason }) => [kind, reason]), [["pause", "wrong prices"]]);
  assert.deepEqual(await wakeq.switches(), []);
  assert.equal((await wakeq.explain(free.id)).rule ?? null, null);
  await other.cancel(held.id);
  await wakeq.cancel(free.id);
  assert.equal((await wakeq.unpauseCanvas()).lifted, false);
  assert.equal((await other.unpauseCanvas()).lifted, true);
});

const skipAdmin = skip || (adminKey ? false : "WAKEQ_ADMIN_KEY is an admin's");

test("an admin blocks a handler or a canvas, and users don't lift that", { skip: skipAdmin }, async () => {
  const [wakeq, other, name] = [client(), client({ key: otherKey, canvas: otherCanvas }), freshName()];
  const admin = client({ key: adminKey, canvas: otherCanvas });
  const blocked = await admin.block(name, { reason: "wrong prices", for_s: 600 });
  assert.deepEqual([blocked.new, blocked.rule.kind, blocked.rule.stops], [true, "block", "handler"]);
  const [held, free] = [await other.emit({ name }), await wakeq.emit({ name, delay_s: 3600 })];
  assert.equal((await other.explain(held.id)).state, "blocked");
  assert.deepEqual(await other.unpause(name).then(({ lifted, still }) => [lifted, still]), [false, "block"]);
  assert.deepEqual((await other.handler(name)).rules.map(({ reason }) => reason), ["wrong prices"]);
  assert.deepEqual((await wakeq.handler(name)).rules, []);
  await other.cancel(held.id);
  await wakeq.cancel(free.id);

  assert.equal((await admin.blockCanvas({ reason: "wrong prices" })).rule.stops, "canvas");
  assert.deepEqual((await other.switches()).map(({ kind, stops }) => [kind, stops]), [["block", "canvas"]]);
  assert.deepEqual(await wakeq.switches(), []);
  assert.deepEqual(await admin.unblock(name).then(({ lifted, under }) => [lifted, under?.stops]), [true, "canvas"]);
  assert.deepEqual([(await admin.unblockCanvas()).lifted, (await admin.unblockCanvas()).lifted], [true, false]);

  const strange = client({ key: adminKey });
  for (const call of [() => strange.block(name), () => strange.unblock(name), () => strange.unblockCanvas()]) {
    await fails(call, 404, "not-found");
  }
  await fails(strange.blockCanvas(), 404, "not-found");
  for (const call of [() => wakeq.block(name), () => wakeq.blockCanvas()]) await fails(call, 403, "forbidden");
  for (const call of [() => admin.blockAll(), () => admin.unblockAll()]) await fails(call, 403, "forbidden");
});

test("statistics are of a handler, or of the canvas", { skip }, async () => {
  const [wakeq, name] = [client(), freshName()];
  for (const range of [{ name, step_s: 3600 }, { step_s: 3600 }]) {
    const chart = await wakeq.statistics(range);
    assert.equal(chart.step_s, 3600);
    assert.ok(chart.at.length >= 24);
    for (const column of [chart.emitted, chart.dead, chart.wait.count, chart.run.p95_s]) {
      assert.equal(column.length, chart.at.length);
    }
  }
  const of = { name, from: "2020-01-01T00:00:00Z", to: "2020-01-01T02:00:00Z" };
  const { at, completed } = await wakeq.statistics(of);
  assert.deepEqual([at, completed], [["2020-01-01T00:00:00Z", "2020-01-01T01:00:00Z"], [0, 0]]);
  await fails(wakeq.statistics({ step_s: 90 }), 400, "bad-request");
});

test("deliveries are verified; a dead event is listed and redriven", { skip }, async (context) => {
  const [wakeq, name] = [client(), freshName()];
  let [secret, isBroken] = ["", true];
  /** @type {unknown[]} */
  const values = [];
  const url = await serving(context, async (request, response) => {
    const body = Buffer.concat(await request.toArray());
    const delivery = verify(request.headers, body, secret);
    assert.deepEqual([delivery.name, delivery.canvas], [name, "00000000-0000-0000-0000-000000000000"]);
    values.push([delivery.id, delivery.value]);
    response.writeHead(isBroken ? 500 : 204).end();
  });
  const put = await wakeq.setTarget(name, { url, policy: { retries: 0 } });
  secret = put.secret ?? "";
  assert.deepEqual([put.new, put.target.name, put.target.policy.retries], [true, name, 0]);
  const sent = await Promise.all([1, 2].map((value) => wakeq.emit({ name, value })));
  const ids = sent.map(({ id }) => id).sort();

  const dead = await until(async () => {
    const { items } = await wakeq.deadEvents({ name });
    return items.length === 2 ? items : undefined;
  });
  assert.deepEqual(dead.map(({ id }) => id).sort(), ids);
  assert.equal((await wakeq.deadEvents({ name, limit: 1 })).items.length, 1);
  const [first = ""] = ids;
  const other = client({ key: otherKey, canvas: otherCanvas });
  assert.deepEqual((await other.deadEvents({ name })).items, []);
  assert.equal((await other.redrive({ name })).redriven, 0);
  await fails(other.redriveOne(first), 404, "not-found");

  isBroken = false;
  assert.equal((await wakeq.redrive({ name, dry_run: true })).redriven, 2);
  assert.deepEqual(await wakeq.redriveOne(first), { id: first });
  assert.deepEqual(await wakeq.redrive({ name }).then(({ redriven, more }) => [redriven, more]), [1, false]);
  await until(async () => (values.length === 4 ? values : undefined));

  const targets = [];
  for await (const target of wakeq.eachTarget({ limit: 1 })) targets.push(target.name);
  assert.ok(targets.includes(name), String(targets));
  const cursor = (await wakeq.targets({ limit: 1 })).next_cursor ?? undefined;
  for (const filter of [{ name }, { cursor }]) {
    assert.ok(!(await other.targets(filter)).items.some((target) => target.name === name));
  }
  await fails(other.removeTarget(name), 404, "not-found");
  assert.equal(await wakeq.removeTarget(name), undefined);
  assert.deepEqual((await wakeq.targets({ name })).items, []);
});

test("nothing crosses canvases", { skip }, async () => {
  const [wakeq, other] = [client(), client({ key: otherKey, canvas: otherCanvas })];
  const { id } = await wakeq.emit({ name: freshName(), delay_s: 3600 });
  const intruder = client({ key: otherKey });
  const calls = [
    () => other.event(id),
    () => other.explain(id),
    () => other.cancel(id),
    () => intruder.emit({ name: freshName() }),
    () => intruder.explain(id),
    () => intruder.cancel(id),
    () => intruder.handlers(),
    () => intruder.statistics(),
    () => intruder.statistics({ name: "greet" }),
    () => intruder.pause("greet"),
    () => intruder.deadEvents(),
    () => intruder.redrive({ all: true }),
    () => intruder.events(),
    () => intruder.countEvents(),
    () => intruder.endedEvents(),
    () => intruder.setTags(id, []),
    () => intruder.setDue(id, { delay_s: 1 }),
    () => intruder.batches(),
    () => intruder.openBatch("import:1", { name: "imported" }),
    () => intruder.operations(),
    () => intruder.beginOperation({ kind: "cancel", all: true }),
    () => intruder.previewOperation({ kind: "cancel", all: true }),
    () => intruder.limits(),
    () => intruder.setLimit("customer", { concurrency: 1 }),
    () => intruder.switches(),
    () => intruder.runNow(id),
    () => intruder.handler("greet"),
    () => intruder.attempts("greet"),
    () => intruder.depth(),
    () => intruder.purge("greet"),
    () => intruder.targets(),
    () => intruder.setTarget("greet", { url: "https://mail.example/events" }),
    () => intruder.programs(),
    () => intruder.errorGroups(),
    () => intruder.deleteDead({ all: true }),
    () => intruder.haltedObjects(),
    () => intruder.skipObject("work:1", "greet"),
    () => intruder.crons(),
    () => intruder.setCron("report", { expression: "@yearly" }),
  ];
  for (const call of calls) await fails(call, 404, "not-found");
  assert.equal((await wakeq.explain(id)).state, "delayed");
  await wakeq.cancel(id);
});

test("what the service refuses is told apart", { skip }, async () => {
  const wakeq = client();
  const wrong = key.replace(/.$/, (last) => (last === "0" ? "1" : "0"));
  await fails(client({ key: wrong }).handlers(), 401, "unauthenticated");
  await fails(client({ key: async () => "no-key-at-all" }).handlers(), 401, "unauthenticated");
  await fails(wakeq.explain(NOBODY), 404, "not-found");
  await fails(wakeq.redriveOne(NOBODY), 404, "not-found");
  await fails(wakeq.explain("not a/uuid?"), 400, "bad-request");
  await fails(wakeq.emit({ name: "no blanks" }), 400, "bad-request");
  await fails(wakeq.emit(/** @type {any} */ ({ name: "greet", nmae: 1 })), 400, "bad-request");
  await fails(wakeq.emit({ name: "greet", value: "x".repeat(300_000) }), 413, "too-large");
  await fails(wakeq.emitAll([]), 400, "bad-request");
  await fails(wakeq.redrive({}), 400, "bad-request");
  await fails(wakeq.deadEvents({ limit: 0 }), 400, "bad-request");
  await fails(wakeq.request("GET", /** @type {any} */ ("/v2")), 404, "not-found");
});
