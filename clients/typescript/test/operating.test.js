// Calls about many events, limits, workers and queues, against a real service. Another tenant has
// events with the same names, tags, batches and limits.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { client, fails, freshName, idsOf, leased, other, queue, skip, until, wideKey } from "./service.js";

test("events are found by tags and values, counted, and given other tags and times", { skip }, async () => {
  const [wakeq, theirs, name, tag] = [client(), other(), freshName(), `t:${randomUUID()}`];
  const events = [1, 2, 3].map((n) => (
    { name, value: { n }, delay_s: 3600 * n, options: { tags: [tag, `n:${n}`] } }
  ));
  const ids = (await wakeq.emitAll(events)).map(({ id }) => id);
  const [first = "", second = ""] = ids;
  const [foreign = ""] = (await theirs.emitAll(events.slice(0, 1))).map(({ id }) => id);

  assert.deepEqual(await idsOf(wakeq.eachEvent({ tag, limit: 1 })), ids);
  assert.deepEqual(await idsOf(wakeq.eachEvent({ name })), ids);
  assert.deepEqual(await idsOf(wakeq.eachEvent({ tag: [tag, "n:1"], state: ["ready", "delayed"] })), [first]);
  assert.deepEqual(await idsOf(wakeq.eachEvent({ tag: [tag, "n:1", "n:2"], state: [] })), []);
  assert.deepEqual(await idsOf(theirs.eachEvent({ tag })), [foreign]);
  const page = await wakeq.events({ tag, limit: 2 });
  assert.deepEqual(page.items.map(({ id }) => id), [first, second]);
  assert.ok(page.items[0]?.tags?.includes(tag));
  const cursor = page.next_cursor ?? "";
  assert.deepEqual(await idsOf(wakeq.eachEvent({ tag, cursor })), ids.slice(2));
  assert.deepEqual(await idsOf(theirs.eachEvent({ tag, cursor })), []);
  const count = await wakeq.countEvents({ tag, value: "$.n = 2" });
  assert.deepEqual([count.count, count.next_cursor], [1, null]);
  assert.equal((await theirs.countEvents({ tag })).count, 1);
  await fails(wakeq.events({ tag: "a,,b" }), 400, "bad-request");

  assert.deepEqual(await wakeq.setTags(first, ["late"]), { id: first });
  assert.equal((await wakeq.countEvents({ tag })).count, 2);
  const due = await wakeq.setDue(second, { delay_s: 60 });
  assert.deepEqual([due.id, due.delay_until], [second, (await wakeq.explain(second)).delay_until]);
  await fails(theirs.setTags(first, []), 404, "not-found");
  await fails(theirs.setDue(second, { delay_s: 1 }), 404, "not-found");
  await fails(wakeq.setTags(first, ["a,b"]), 400, "bad-request");
  for (const id of ids) await wakeq.cancel(id);
  await theirs.cancel(foreign);
});

test("events are kept after their end, and listed", { skip }, async () => {
  const [wakeq, theirs, name] = [client(), other(), freshName()];
  const kept = { name, delay_s: 3600, options: { keep_s: 3600 } };
  const tagged = { ...kept, options: { keep_s: 3600, tags: ["late", "vip"] } };
  const ids = [(await wakeq.emit(kept)).id, (await wakeq.emit(tagged)).id];
  for (const id of ids) await wakeq.cancel(id);
  const page = await wakeq.endedEvents({ name, limit: 1 });
  assert.deepEqual([page.items[0]?.id, page.items[0]?.outcome], [ids[1], "cancelled"]);
  assert.deepEqual(await idsOf(wakeq.eachEndedEvent({ name, limit: 1 })), [ids[1], ids[0]]);
  assert.deepEqual(await idsOf(wakeq.eachEndedEvent({ name, outcome: "failed" })), []);
  assert.deepEqual(await idsOf(wakeq.eachEndedEvent({ name, tag: ["late", "vip"] })), [ids[1]]);
  assert.equal((await wakeq.countEndedEvents({ name })).count, 2);
  assert.equal((await wakeq.countEndedEvents({ name, tag: "vip", outcome: "cancelled" })).count, 1);
  assert.equal((await theirs.countEndedEvents({ name })).count, 0);
  assert.deepEqual(await idsOf(theirs.eachEndedEvent({ name, cursor: page.next_cursor ?? "" })), []);
  assert.deepEqual(await idsOf(theirs.eachEndedEvent({ name })), []);
  assert.equal((await wakeq.explain(ids[0] ?? "")).state, "cancelled");
  await fails(theirs.explain(ids[0] ?? ""), 404, "not-found");
});

test("dead events are found by tags and errors", { skip }, async () => {
  const [wakeq, theirs, name, tag] = [client(), other(), freshName(), `t:${randomUUID()}`];
  const events = await leased(wakeq, name, { options: { tags: [tag] } }, { count: 2 });
  for (const { release } of events) await release("no such user");
  const ids = events.map(({ id }) => id).reverse();
  const waiting = await theirs.emit({ name, delay_s: 3600, options: { tags: [tag] } });
  const filter = { tag: [tag], error_text: "such" };
  const page = await wakeq.deadEvents({ ...filter, limit: 1 });
  assert.deepEqual(page.items.map(({ id, cause }) => [id, cause]), [[ids[0], "rejected"]]);
  assert.deepEqual(await idsOf(wakeq.eachDeadEvent({ ...filter, limit: 1 })), ids);
  assert.deepEqual(await idsOf(theirs.eachDeadEvent(filter)), []);
  assert.deepEqual(await idsOf(theirs.eachDeadEvent({ ...filter, cursor: page.next_cursor ?? "" })), []);
  assert.deepEqual(await idsOf(wakeq.eachDeadEvent({ tag, error_text: "route" })), []);
  assert.equal((await wakeq.countEvents({ tag, state: "dead" })).count, 2);
  assert.equal((await theirs.countEvents({ tag, state: "dead" })).count, 0);
  assert.equal((await wakeq.redrive({ name })).redriven, 2);
  await wakeq.unpull(name);
  for (const id of ids) await wakeq.cancel(id);
  await theirs.cancel(waiting.id);
});

test("a batch is opened, closed, listed and given up", { skip }, async () => {
  const [wakeq, theirs, name] = [client(), other(), freshName()];
  const [batch, onEnd] = [`import:${name}`, { name, value: "a.csv" }];
  const opened = await wakeq.openBatch(batch, onEnd);
  assert.deepEqual([opened.name, opened.state, opened.left], [batch, "open", 0]);
  await fails(wakeq.openBatch(batch, { name, value: "b.csv" }), 409, "conflict");
  const { id } = await wakeq.emit({ name, batch, delay_s: 3600 });
  assert.deepEqual(await idsOf(wakeq.eachEvent({ batch })), [id]);
  for (const call of [() => theirs.batch(batch), () => theirs.closeBatch(batch), () => theirs.cancelBatch(batch)]) {
    await fails(call, 404, "not-found");
  }
  assert.deepEqual(await wakeq.closeBatch(batch).then(({ state, left }) => [state, left]), ["closed", 1]);
  await wakeq.cancel(id);
  const ended = await wakeq.batch(batch);
  assert.deepEqual([ended.state, ended.counts?.cancelled, ended.on_end.id], ["ended", 1, opened.on_end.id]);
  await wakeq.cancel(ended.on_end.id);

  await wakeq.openBatch(`${batch}/2`, onEnd);
  assert.equal(await wakeq.cancelBatch(`${batch}/2`), undefined);
  await theirs.openBatch(`${batch}/3`, onEnd);
  const states = [];
  for await (const { name, state } of wakeq.eachBatch({ limit: 1 })) if (name.startsWith(batch)) states.push(state);
  assert.deepEqual(states, ["ended", "cancelled"]);
  const page = await wakeq.batches({ limit: 1 });
  assert.equal(page.items.length, 1);
  const foreign = (await theirs.batches({ cursor: page.next_cursor ?? "" })).items.map(({ name }) => name);
  assert.ok(!foreign.includes(batch) && !foreign.includes(`${batch}/2`), String(foreign));
  await theirs.cancelBatch(`${batch}/3`);
});

test("many events are changed by an operation", { skip }, async () => {
  const [wakeq, theirs, name] = [client(), other(), freshName()];
  const events = [1, 2, 3].map((value) => ({ name, value, delay_s: 3600 }));
  for (const tenant of [wakeq, theirs]) await tenant.emitAll(events);
  const filter = { name };
  const preview = await wakeq.previewOperation({ kind: "delete", filter });
  assert.deepEqual([preview.count, preview.more], [3, false]);
  /** @type {{ kind: "delete", filter: { name: string }, before: string }} */
  const deletion = { kind: "delete", filter, before: preview.before };
  const idempotencyKey = randomUUID();
  const { id } = await wakeq.beginOperation(deletion, { idempotencyKey });
  assert.equal((await wakeq.beginOperation(deletion, { idempotencyKey })).id, id);
  const ended = await until(async () => {
    const operation = await wakeq.operation(id);
    return operation.state === "open" ? undefined : operation;
  });
  assert.deepEqual([ended.state, ended.kind, ended.changed], ["done", "delete", 3]);
  assert.equal((await wakeq.countEvents({ name })).count, 0);
  assert.equal((await theirs.countEvents({ name })).count, 3);
  assert.equal((await wakeq.cancelOperation(id)).state, "done");
  await fails(theirs.operation(id), 404, "not-found");
  await fails(theirs.cancelOperation(id), 404, "not-found");
  await fails(wakeq.beginOperation({ kind: "delete" }), 400, "bad-request");

  const own = await theirs.beginOperation({ kind: "delete", filter });
  await until(async () => ((await theirs.operation(own.id)).state === "open" ? undefined : true));
  assert.ok((await idsOf(wakeq.eachOperation({ limit: 1 }))).includes(id));
  assert.ok(!(await idsOf(theirs.eachOperation())).includes(id));
  const { items, next_cursor } = await wakeq.operations({ limit: 1 });
  assert.equal(items.length, 1);
  assert.ok(!(await idsOf(theirs.eachOperation(next_cursor ? { cursor: next_cursor } : {}))).includes(id));
});

test("a limit is set, used, listed and removed", { skip }, async () => {
  const [wakeq, theirs, name] = [client(), other(), freshName()];
  const key = `${name}:7`;
  const rate = { count: 100, period_s: 60, burst: 10 };
  const set = await wakeq.setLimit(name, { concurrency: 5, rate });
  assert.deepEqual([set.new, set.limit.concurrency, set.limit.rate], [true, 5, rate]);
  assert.equal((await wakeq.setLimit(name, { concurrency: 2 })).new, false);
  await wakeq.setLimit(key, { concurrency: 1 });
  await theirs.setLimit(name, { concurrency: 9 });
  assert.deepEqual([(await wakeq.limit(name)).concurrency, (await theirs.limit(name)).concurrency], [2, 9]);
  const names = [];
  for await (const limit of wakeq.eachLimit({ limit: 1 })) names.push(limit.name);
  assert.deepEqual(names.filter((of) => of.startsWith(name)), [name, key]);
  const cursor = (await wakeq.limits({ limit: 1 })).next_cursor ?? "";
  assert.ok(!(await theirs.limits({ cursor })).items.some((limit) => limit.name === key));

  const [event] = await leased(wakeq, name, { options: { limits: [key] } });
  const uses = (await wakeq.limitUses(key)).items;
  assert.deepEqual(uses.map((use) => [use.name, use.running, use.holders]), [[key, 1, [event?.id]]]);
  assert.deepEqual((await theirs.limitUses(key)).items, []);
  await event?.release();
  await wakeq.cancel(event?.id ?? "");
  await wakeq.unpull(name);
  for await (const use of wakeq.eachLimitUse(key)) assert.equal(use.running, 0);

  await fails(theirs.limit(key), 404, "not-found");
  await fails(theirs.removeLimit(key), 404, "not-found");
  assert.equal(await wakeq.removeLimit(key), undefined);
  await wakeq.removeLimit(name);
  await fails(wakeq.limit(name), 404, "not-found");
  assert.equal((await theirs.limit(name)).concurrency, 9);
  await theirs.removeLimit(name);
});

const skipWide = skip || (wideKey ? false : "WAKEQ_WIDE_KEY is of every canvas");

test("a key of every canvas sees the workers", { skip: skipWide }, async () => {
  const [wakeq, wide] = [client(), client({ key: wideKey })];
  const [first] = (await wide.workers({ limit: 1 })).items;
  const workers = [];
  for await (const worker of wide.eachWorker({ limit: 1 })) workers.push(worker.instance);
  assert.ok(first && workers.includes(first.instance));
  const shown = await wide.worker(first.name, { instance: first.instance });
  assert.deepEqual([shown.worker.name, shown.worker.instance], [first.name, first.instance]);
  assert.equal((await wide.worker(first.name)).worker.name, first.name);
  await fails(wide.worker(freshName()), 404, "not-found");
  for (const call of [() => wakeq.workers(), () => wakeq.worker(first.name), () => other().workers()]) {
    await fails(call, 403, "forbidden");
  }
});

test("a key of every canvas sees the queues, and the depth of all", { skip: skipWide }, async () => {
  const [wakeq, wide, name] = [client(), client({ key: wideKey }), freshName()];
  assert.equal((await wide.totalDepth({ name })).depth, 0);
  for (const tenant of [wakeq, other()]) {
    await tenant.pull(name);
    await tenant.emit({ name });
  }
  // Another test pauses the other canvas for a moment.
  await until(async () => ((await wide.totalDepth({ name })).depth === 2 ? true : undefined));
  for (const call of [() => wakeq.totalDepth(), () => wakeq.queues(), () => other().queueDepth(name)]) {
    await fails(call, 403, "forbidden");
  }
  await fails(wide.queueDepth(name), 404, "not-found");
  for (const tenant of [wakeq, other()]) {
    assert.equal((await tenant.purge(name)).purged, 1);
    await tenant.unpull(name);
  }
});

const skipQueue = skipWide || (queue ? false : "WAKEQ_QUEUE is a queue");

test("a queue is listed, with its depth", { skip: skipQueue }, async () => {
  const wide = client({ key: wideKey });
  const names = [];
  for await (const { name } of wide.eachQueue({ limit: 1 })) names.push(name);
  assert.ok(names.includes(queue), String(names));
  assert.equal((await wide.queues({ limit: 1 })).items.length, 1);
  const before = (await wide.queueDepth(queue)).depth;
  for (const tenant of [client(), other()]) await tenant.emit({ name: queue, only_queues: true });
  const { depth, capped } = await wide.queueDepth(queue);
  assert.deepEqual([depth, capped], [before + 2, false]);
});
