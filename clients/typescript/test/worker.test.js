// The worker's loop, against a small service of this file's own: what it leases, extends, completes
// and releases, and how it stops. The last test is against a real one.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { Client, DeadError, StopError, Worker } from "wakeq";
import { client, freshName, serving, skip, until } from "./service.js";

const TOKEN = "0".repeat(40);

/**
 * A service with events to lease, which notes what it is told of them.
 * @param {import("node:test").TestContext} context
 * @param {unknown[]} values
 * @param {(told: Told) => Partial<Answer> | undefined} [answering]
 */
async function stub(context, values, answering = () => undefined) {
  const waiting = values.map((value, index) => ({ id: `event-${index}`, value }));
  /** @type {Told[]} */
  const told = [];
  const url = await serving(context, async (request, response) => {
    let text = "";
    for await (const part of request) text += part;
    const [, , , , handlers, module, name, , id = "", verb = "lease"] = (request.url ?? "").split("/");
    assert.equal(handlers, "handlers");
    const body = JSON.parse(text);
    const call = { handler: `${module}/${name}`, id, verb, body, before: told.length };
    told.push(call);
    const other = answering(call);
    const { status, json, hold } = other?.status ? { ...other, status: other.status } : { ...usualAnswer(call), ...other };
    if (hold) return;
    const type = status < 400 ? "application/json" : "application/problem+json";
    response.writeHead(status, { "content-type": type });
    response.end(json === undefined ? "" : JSON.stringify(json));
  });
  /**
   * @param {Told} call
   * @returns {Answer}
   */
  function usualAnswer({ verb, body, handler }) {
    if (verb === "complete") return { status: 204 };
    if (verb === "extend") return { status: 200, json: { lease_until: new Date(), cancelled: false } };
    if (verb === "release") return { status: 200, json: { died: false, retry_s: 0 } };
    assert.ok(body.max >= 1);
    const [module, name] = handler.split("/");
    const events = waiting.splice(0, body.max).map((event) => ({
      ...event, lease: TOKEN, lease_until: new Date(), attempt: 1, module, name, modifier: "_",
      emitted_at: new Date(), due_at: new Date(),
    }));
    // A long poll: without events the answer takes until the worker stops.
    return { status: 200, json: { events }, hold: events.length === 0 };
  }
  return { told, waiting, worker: new Worker(new Client({ url, key: "wakeq_stub", retries: 0 })) };
}

/**
 * @typedef {{ status: number, json?: unknown, hold?: boolean }} Answer
 * @typedef {{ handler: string, id: string, verb: string, body: any, before: number }} Told
 */

/** @param {number} status */
const problem = (status) => {
  const json = { type: "urn:wakeq:problem:x", title: "t", status, detail: "d", request_id: "r" };
  return { status, json, hold: false };
};

/**
 * @param {Told[]} told
 * @param {string} verb
 */
const about = (told, verb) => told.filter((call) => call.verb === verb);

const quiet = { signals: [], onError: () => {} };

test("a worker leases under the name that it is given", async (context) => {
  const { told, worker } = await stub(context, [1]);
  await worker.run({ greet: () => worker.stop() }, { ...quiet, name: "mailer-7" });
  assert.equal(told[0]?.body.worker, "mailer-7");
  for (const name of ["", "a b", "host:7", "x".repeat(129)]) {
    await assert.rejects(worker.run({ greet: () => {} }, { ...quiet, name }), TypeError, name);
  }
});

test("what a function returns completes its event", async (context) => {
  const { told, worker } = await stub(context, [1, 2, 3]);
  /** @type {unknown[]} */
  const seen = [];
  const running = worker.run({
    greet: async (event, { signal, leaseUntil }) => {
      assert.ok(!signal.aborted && leaseUntil instanceof Date);
      seen.push(event.value);
      if (seen.length === 3) worker.stop();
    },
  }, quiet);
  await running;
  assert.deepEqual(seen, [1, 2, 3]);
  assert.deepEqual(about(told, "complete").map(({ id, body }) => [id, body]).sort(), [
    ["event-0", { lease: TOKEN }], ["event-1", { lease: TOKEN }], ["event-2", { lease: TOKEN }],
  ]);
  const body = { max: 10, lease_s: 60, wait_s: 20, worker: told[0]?.body.worker };
  assert.deepEqual(told[0], { handler: "WORKER/greet", id: "", verb: "lease", body, before: 0 });
  assert.match(body.worker, new RegExp(`^[A-Za-z0-9_.-]+-${process.pid}$`), "the host and the process");
});

test("what a function returns is the result of its event", async (context) => {
  const long = "x".repeat(65_535);
  const returned = [{ receipt: 7 }, null, undefined, long, NaN, () => 1];
  const { told, worker } = await stub(context, [0, 1, 2, 3, 4, 5]);
  /** @type {any[]} */
  const errors = [];
  let count = 0;
  await worker.run({
    greet: ({ value }) => {
      count += 1;
      if (count === returned.length) worker.stop();
      return returned[/** @type {number} */ (value)];
    },
  }, { ...quiet, onError: (error) => errors.push(error) });
  const results = new Map(about(told, "complete").map(({ id, body }) => [id, body]));
  assert.deepEqual(results.get("event-0"), { lease: TOKEN, result: { receipt: 7 } });
  assert.deepEqual(results.get("event-1"), { lease: TOKEN, result: null });
  for (const id of [2, 3, 4, 5]) assert.deepEqual(results.get(`event-${id}`), { lease: TOKEN }, `${id}`);
  assert.equal(errors.length, 3);
  for (const error of errors) assert.match(error.message, /not kept as the result/);
});

test("what a function throws says what becomes of its event", async (context) => {
  const { told, worker } = await stub(context, ["retry", "later", "dead", "text"]);
  let count = 0;
  await worker.run({
    "MAIL/send": ({ value }) => {
      if (++count === 4) worker.stop();
      if (value === "retry") throw new Error("no route");
      if (value === "later") throw Object.assign(new Error("busy"), { retryS: 7 });
      if (value === "dead") throw new DeadError("no such user");
      throw "a text";
    },
  }, { ...quiet, concurrency: 4 });
  const released = about(told, "release").map(({ id, body: { lease, ...how } }) => [id, how]);
  assert.deepEqual(released.sort(), [
    ["event-0", { error: "no route" }],
    ["event-1", { error: "busy", retry_s: 7 }],
    ["event-2", { error: "no such user", dead: true }],
    ["event-3", { error: "a text" }],
  ]);
  assert.equal(about(told, "complete").length, 0);
  assert.equal(told[0]?.handler, "MAIL/send");
});

test("an error that the service would refuse is made to fit", async (context) => {
  const { told, worker } = await stub(context, [-1, 1e12]);
  let count = 0;
  await worker.run({
    big: ({ value }) => {
      if (++count === 2) worker.stop();
      throw Object.assign(new Error(`\ud83d${"x".repeat(300_000)}`), { retryS: value });
    },
  }, quiet);
  const error = `\ufffd${"x".repeat(3_999)}`;
  const released = about(told, "release").map(({ body: { lease, ...how } }) => how);
  assert.deepEqual(released.sort((a, b) => a.retry_s - b.retry_s), [
    { error, retry_s: 0 }, { error, retry_s: 2_592_000 },
  ]);
});

test("many events at once are no warning", async (context) => {
  const { worker } = await stub(context, Array.from({ length: 40 }, (_, index) => index));
  /** @type {Error[]} */
  const warnings = [];
  const note = (/** @type {Error} */ warning) => warnings.push(warning);
  process.on("warning", note);
  let running = 0;
  await worker.run({
    crowd: async (_, { signal }) => {
      if (++running === 40) worker.stop();
      await once(signal, "abort");
    },
  }, { ...quiet, concurrency: 40, graceS: 0.05 });
  await new Promise((resolve) => setImmediate(resolve));
  process.removeListener("warning", note);
  assert.deepEqual(warnings, []);
});

test("no more than the concurrency run at once, and leases are only for those", async (context) => {
  const { told, worker } = await stub(context, Array.from({ length: 30 }, (_, index) => index));
  let [running, most, ended] = [0, 0, 0];
  const work = async () => {
    most = Math.max(most, ++running);
    await new Promise((resolve) => setImmediate(resolve));
    running -= 1;
    if (++ended === 30) worker.stop();
  };
  await worker.run({ a: work, b: work }, { ...quiet, concurrency: 3 });
  assert.ok(most <= 3 && ended === 30);
  assert.ok(about(told, "lease").every(({ body }) => body.max <= 3));
});

test("a lease is extended by itself, and a lost one stops its function", async (context) => {
  const { told, worker } = await stub(context, ["long"], ({ verb, before }) =>
    verb === "extend" && before > 3 ? problem(410) : undefined);
  /** @type {unknown} */
  let reason;
  await worker.run({
    long: async (_, { signal }) => {
      await once(signal, "abort");
      reason = signal.reason;
      worker.stop();
      throw signal.reason;
    },
  }, { ...quiet, leaseS: 4 });
  assert.ok(reason instanceof StopError && reason.code === "lease-lost");
  assert.ok(about(told, "extend").length >= 2);
  assert.deepEqual([about(told, "complete").length, about(told, "release").length], [0, 0]);
});

test("a cancelled event stops its function, and counts no failure", async (context) => {
  const { told, worker } = await stub(context, ["long"], ({ verb }) =>
    verb === "extend" ? { json: { lease_until: new Date(), cancelled: true } } : undefined);
  await worker.run({
    long: async (_, { signal }) => {
      await once(signal, "abort");
      worker.stop();
      throw signal.reason;
    },
  }, { ...quiet, leaseS: 4 });
  assert.deepEqual(about(told, "release").map(({ body }) => body), [{ lease: TOKEN }]);
});

test("the lease of a cancelled event is not extended any more, and ends", async (context) => {
  const { told, worker } = await stub(context, ["deaf"], ({ verb }) =>
    verb === "extend" ? { json: { lease_until: new Date(), cancelled: true } } : undefined);
  await worker.run({
    deaf: async (_, { signal }) => {
      await once(signal, "abort");
      assert.equal(signal.reason.code, "cancelled");
      // Longer than the lease.
      await new Promise((resolve) => setTimeout(resolve, 4200));
      worker.stop();
    },
  }, { ...quiet, leaseS: 4 });
  assert.deepEqual(["extend", "complete", "release"].map((verb) => about(told, verb).length), [1, 0, 0]);
});

test("what has not begun is released when the worker stops, and what runs has its grace", async (context) => {
  const { told, worker } = await stub(context, [1, 2], ({ verb, body }) => {
    if (verb === "lease") body.max = 2;
    return undefined;
  });
  /** @type {unknown[]} */
  const begun = [];
  const stubborn = worker.run({
    slow: async ({ value }, { signal }) => {
      begun.push(value);
      worker.stop();
      await once(signal, "abort");
      assert.equal(signal.reason.code, "shutdown");
    },
  }, { ...quiet, concurrency: 1, graceS: 0.05 });
  await stubborn;
  assert.deepEqual(begun, [1]);
  assert.deepEqual(about(told, "release").map(({ id }) => id), ["event-1"]);
  assert.deepEqual(about(told, "complete").map(({ id }) => id), ["event-0"]);
});

test("a worker stops beside a function that did not heed the cancelling of its event", async (context) => {
  const { told, worker } = await stub(context, ["deaf"], ({ verb }) =>
    verb === "extend" ? { json: { lease_until: new Date(), cancelled: true } } : undefined);
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const ticking = setInterval(() => context.mock.timers.tick(100), 1);
  await worker.run({
    deaf: (_, { signal }) => {
      signal.addEventListener("abort", () => worker.stop());
      return new Promise(() => {});
    },
  }, { ...quiet, graceS: 1 });
  clearInterval(ticking);
  assert.deepEqual(about(told, "release").map(({ body }) => body), [{ lease: TOKEN }]);
});

test("a request waits for a part of the lease that it asks for", async (context) => {
  const { told, worker } = await stub(context, ["x"]);
  await worker.run({ x: () => worker.stop() }, { ...quiet, leaseS: 6 });
  assert.deepEqual([told[0]?.body.lease_s, told[0]?.body.wait_s], [6, 2]);
});

test("errors of the service are repeated, and a completion until it is answered", async (context) => {
  let refused = 0;
  const { told, worker } = await stub(context, ["x"], ({ verb }) =>
    verb !== "extend" && refused++ % 2 === 0 ? problem(503) : undefined);
  /** @type {unknown[]} */
  const errors = [];
  await worker.run({ x: () => worker.stop() }, { signals: [], onError: (error) => errors.push(error) });
  assert.equal(about(told, "complete").length, 2);
  assert.ok(errors.length >= 1);
});

test("bad arguments are a TypeError", async () => {
  const worker = new Worker(new Client({ url: "http://127.0.0.1:1", key: "wakeq_stub" }));
  const work = () => {};
  /** @type {any[][]} */
  const wrong = [
    [{}, {}], [{ "a/b/c": work }, {}], [{ "": work }, {}], [{ a: 1 }, {}],
    [{ a: work }, { concurrency: 0 }], [{ a: work }, { leaseS: 0.5 }], [{ a: work }, { graceS: -1 }],
  ];
  for (const [handlers, options] of wrong) {
    await assert.rejects(worker.run(handlers, options), TypeError);
  }
});

test("SIGTERM stops a program when its functions have ended", async (context) => {
  const { told } = await stubUrl(context);
  const program = `
    import { Client, Worker } from "wakeq";
    const worker = new Worker(new Client({ url: process.argv[1], key: "wakeq_stub" }));
    await worker.run({ slow: async () => {
      process.stdout.write("begun");
      await new Promise((resolve) => process.once("SIGTERM", () => setTimeout(resolve, 50)));
    } });
    process.stdout.write(" ended");`;
  const child = spawn(process.execPath, ["--input-type=module", "--eval", program, told.url], { stdio: ["ignore", "pipe", "inherit"] });
  let output = "";
  child.stdout.on("data", (part) => {
    output += part;
    if (output === "begun") child.kill("SIGTERM");
  });
  const [code] = await once(child, "exit");
  assert.deepEqual([code, output], [0, "begun ended"]);
  assert.deepEqual(about(told.calls, "complete").length, 1);
});

/** @param {import("node:test").TestContext} context */
async function stubUrl(context) {
  /** @type {Told[]} */
  const calls = [];
  let left = 1;
  const url = await serving(context, async (request, response) => {
    let text = "";
    for await (const part of request) text += part;
    const [, , , , , module, name, , id = "", verb = "lease"] = (request.url ?? "").split("/");
    calls.push({ handler: `${module}/${name}`, id, verb, body: JSON.parse(text), before: calls.length });
    if (verb === "complete") return response.writeHead(204).end();
    if (left-- < 1) return;
    const now = new Date();
    const event = { id: "e", lease: TOKEN, lease_until: now, attempt: 1, module, name, modifier: "_", value: 1, emitted_at: now, due_at: now };
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ events: [event] }));
  });
  return { told: { url, calls } };
}

test("events of the real service are worked off, failed ones again, and dead ones are dead", { skip }, async () => {
  const [wakeq, name] = [client(), freshName()];
  await wakeq.pull(name, { retries: 1, delay_s: 0 });
  const values = ["good", "flaky", "bad"];
  await wakeq.emitAll(values.map((value) => ({ name, value })));
  const worker = new Worker(wakeq);
  /** @type {string[]} */
  const ran = [];
  const running = worker.run({
    [name]: ({ value, attempt }) => {
      ran.push(`${value} ${attempt}`);
      if (value === "flaky" && attempt === 1) throw new Error("try again");
      if (value === "bad") throw new DeadError("never");
    },
  }, { signals: [] });
  const dead = await until(async () => {
    const { items } = await wakeq.deadEvents({ name });
    return items.length === 1 && ran.length === 4 ? items : undefined;
  });
  worker.stop();
  await running;
  assert.deepEqual(ran.sort(), ["bad 1", "flaky 1", "flaky 2", "good 1"]);
  assert.deepEqual([dead[0]?.cause, dead[0]?.last_error], ["rejected", "never"]);
  await wakeq.unpull(name);
});
