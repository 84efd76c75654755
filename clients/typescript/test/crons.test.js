// Crons, against a real service. Another tenant has a cron of the same name.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { client, fails, freshName, other, skip } from "./service.js";

test("a cron is set, listed, run now, paused and removed", { skip }, async () => {
  const [wakeq, theirs, name] = [client(), other(), freshName()];
  const set = await wakeq.setCron(name, { expression: "30 8 1 1 *", zone: "Europe/Berlin", value: { to: "Ada" } });
  assert.deepEqual([set.name, set.zone, set.missed, set.next.length], [name, "Europe/Berlin", "skip", 5]);
  await theirs.setCron(name, { expression: "@yearly", value: "theirs" });
  await wakeq.setCron(`${name}.2`, { expression: "@yearly", missed: "once" });
  assert.deepEqual((await wakeq.cron(name)).value, { to: "Ada" });
  const names = [];
  for await (const cron of wakeq.eachCron({ limit: 1 })) if (cron.name.startsWith(name)) names.push(cron.name);
  assert.deepEqual(names, [name, `${name}.2`]);
  const page = await wakeq.crons({ limit: 1 });
  assert.equal(page.items.length, 1);
  const foreign = (await theirs.crons({ cursor: page.next_cursor ?? undefined })).items;
  assert.ok(!foreign.some((cron) => cron.name === `${name}.2`));

  const idempotencyKey = randomUUID();
  const { id } = await wakeq.runCron(name, { idempotencyKey });
  assert.equal((await wakeq.runCron(name, { idempotencyKey })).id, id);
  const event = await wakeq.event(id);
  assert.deepEqual([event.module, event.name, event.value], ["CRON", name, { to: "Ada" }]);
  await fails(theirs.event(id), 404, "not-found");
  await wakeq.purge(name, { module: "CRON" });

  const paused = await wakeq.pauseCron(name, { reason: "the warehouse moves" });
  assert.deepEqual([paused.paused?.reason, paused.next], ["the warehouse moves", []]);
  assert.equal((await theirs.cron(name)).paused ?? null, null);
  assert.equal((await wakeq.unpauseCron(name)).paused ?? null, null);
  const second = `${name}.2`;
  for (const call of [
    () => theirs.cron(second),
    () => theirs.runCron(second),
    () => theirs.pauseCron(second),
    () => theirs.unpauseCron(second),
    () => theirs.removeCron(second),
  ]) {
    await fails(call, 404, "not-found");
  }
  await fails(wakeq.setCron(name, { expression: "every day" }), 400, "bad-request");
  for (const of of [name, second]) assert.equal(await wakeq.removeCron(of), undefined);
  await fails(wakeq.cron(name), 404, "not-found");
  assert.equal((await theirs.cron(name)).value, "theirs");
  await theirs.removeCron(name);
});
