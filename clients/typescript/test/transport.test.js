// What happens between client and service: lost answers, refusals for now, time-outs, redirects,
// and arguments that are never sent.

import assert from "node:assert/strict";
import { request as forward } from "node:http";
import { test } from "node:test";
import { inspect } from "node:util";
import { ApiError, Client, TransportError } from "wakeq";
import { client, freshName, serving, skip, url as service } from "./service.js";

const KEY = `wakeq_0123456789ab_${"5".repeat(80)}`;
const LATER = { "content-type": "application/problem+json", "x-request-id": "r-1" };

/** @param {string} code @param {number} status */
const problem = (code, status) =>
  JSON.stringify({ type: `urn:wakeq:problem:${code}`, title: "Later", status, detail: "busy", request_id: "r-1" });

test("an emit whose answer is lost is not doubled", { skip }, async (context) => {
  let count = 0;
  const proxy = await serving(context, (request, response) => {
    const [options, isLost] = [{ method: request.method, headers: request.headers }, (count += 1) === 1];
    const sent = forward(new URL(request.url ?? "", service), options, (answer) => {
      if (isLost) return answer.resume().on("end", () => response.destroy());
      response.writeHead(answer.statusCode ?? 0, answer.headers);
      answer.pipe(response);
    });
    request.pipe(sent);
  });
  const [wakeq, name] = [client({ url: proxy }), freshName()];
  const { id } = await wakeq.emit({ name, delay_s: 3600 });
  assert.equal(count, 2);
  const { items } = await wakeq.request("GET", "/v1/canvases/{canvas}/events", { query: { name } });
  assert.deepEqual(items.map((event) => event.id), [id]);
  const options = { idempotencyKey: name };
  const again = await Promise.all([1, 2].map(() => wakeq.emit({ name, delay_s: 3600 }, options)));
  assert.equal(again[0]?.id, again[1]?.id, "one key, one event");
  await assert.rejects(wakeq.emit({ name, delay_s: 60 }, options), { status: 422, code: "idempotency-mismatch" });
  for (const sent of [id, again[0]?.id ?? ""]) await wakeq.cancel(sent);
});

test("a refusal for now is repeated after its time, or told to the caller", async (context) => {
  /** @type {(string | undefined)[]} */
  const keys = [];
  const url = await serving(context, (request, response) => {
    keys.push(/** @type {string | undefined} */ (request.headers["idempotency-key"]));
    const isLast = keys.length === 3;
    const headers = { ...LATER, "retry-after": request.url?.includes("dead") ? "60" : "0" };
    response.writeHead(isLast ? 202 : 503, isLast ? { "content-type": "application/json" } : headers);
    response.end(isLast ? '{"id":"1","duplicate":false}' : problem("unavailable", 503));
  });
  const wakeq = new Client({ url, key: KEY });
  assert.deepEqual(await wakeq.emit({ name: "greet" }), { id: "1", duplicate: false });
  assert.equal(new Set(keys).size, 1, "the same key each time");
  assert.match(keys[0] ?? "", /^[0-9a-f-]{36}$/);

  const error = await wakeq.deadEvents().catch((error) => error);
  assert.ok(error instanceof ApiError && error.isTemporary);
  assert.deepEqual([error.status, error.retryAfterS, error.requestId, keys.length], [503, 60, "r-1", 4]);
  await assert.rejects(wakeq.cancel("1"), { status: 503 });
  assert.equal(keys.length, 5, "it may have been cancelled: not repeated");
});

test("a running event is cancelled on request only", async (context) => {
  /** @type {string[]} */
  const asked = [];
  const url = await serving(context, (request, response) => {
    asked.push(new URL(request.url ?? "", "http://localhost").search);
    response.writeHead(202, { "content-type": "application/json" });
    response.end('{"id":"1","next":"its handler is told to stop"}');
  });
  const wakeq = new Client({ url, key: KEY });
  await wakeq.cancel("1");
  assert.equal((await wakeq.cancel("1", { running: true })).next, "its handler is told to stop");
  assert.deepEqual(asked, ["", "?running=true"]);
});

test("an answer that does not come, or is not wakeq's, is told apart", async (context) => {
  const silent = await serving(context, () => {});
  const slow = new Client({ url: silent, key: KEY, timeoutMs: 50, retries: 0 });
  await assert.rejects(slow.handlers(), (error) => error instanceof TransportError && /within 50 ms/.test(error.message));
  const patient = new Client({ url: silent, key: KEY });
  await assert.rejects(patient.handlers({ signal: AbortSignal.abort(new Error("enough")) }), /enough/);
  const nowhere = new Client({ url: "http://127.0.0.1:1", key: KEY, retries: 1 });
  await assert.rejects(nowhere.handlers(), (error) => error instanceof TransportError && error.isTemporary);

  let seen = 0;
  const elsewhere = await serving(context, (_, response) => void response.end(String((seen += 1))));
  const redirecting = await serving(context, (_, response) => {
    response.writeHead(302, { location: elsewhere }).end();
  });
  const moved = await new Client({ url: redirecting, key: KEY }).handlers().catch((error) => error);
  assert.deepEqual([moved.status, moved.code, moved.type, seen], [302, undefined, "about:blank", 0]);
  const page = await serving(context, (_, response) => void response.end("<html>"));
  await assert.rejects(new Client({ url: page, key: KEY }).handlers(), { status: 200, message: /not in wakeq's format/ });
});

test("a path, its values and the query arrive as they are meant", async (context) => {
  /** @type {unknown[]} */
  const seen = [];
  const url = await serving(context, (request, response) => {
    seen.push(request.url, request.headers.authorization);
    response.setHeader("content-type", "application/json").end('{"items":[]}');
  });
  const canvas = "01a1fa2a-7101-7382-922f-e03ca3c19953";
  const wakeq = new Client({ url: `${url}/queue/`, key: async () => KEY, canvas });
  const options = { path: { object: "work:1/é ?" }, query: { after: 7 } };
  await wakeq.request("GET", "/v1/canvases/{canvas}/objects/{object}/tombstones", options);
  const target = `/queue/v1/canvases/${canvas}/objects/work%3A1%2F%C3%A9%20%3F/tombstones?after=7`;
  assert.deepEqual(seen, [target, `Bearer ${KEY}`]);
});

test("the key is in nothing that is printed", async () => {
  const wakeq = new Client({ url: "http://127.0.0.1:1", key: KEY, retries: 0 });
  const error = await wakeq.handlers().catch((error) => error);
  const printed = [wakeq, error].map((value) => inspect(value, { showHidden: true, depth: 9 }) + JSON.stringify(value));
  assert.ok(!printed.join().includes(KEY.slice(-20)), printed.join());
});

test("a key in the clear to another machine is warned of", async () => {
  const told = [];
  const warned = (/** @type {Error} */ warning) => told.push(warning.message);
  process.on("warning", warned);
  for (const url of ["http://127.0.0.1:1", "http://localhost", "http://[::1]:80", "https://queue.example"]) {
    assert.equal(new Client({ url, key: KEY }).isInTheClear, false, url);
  }
  for (const url of ["http://queue.example", "http://10.0.0.1:8080", "http://127.0.0.1.example"]) {
    assert.equal(new Client({ url, key: KEY }).isInTheClear, true, url);
  }
  await new Promise(setImmediate);
  process.off("warning", warned);
  assert.equal(told.length, 3);
  assert.ok(told[0].includes("in the clear to queue.example") && !told.join().includes(KEY), told.join());
});

test("invalid arguments are never sent", async () => {
  const url = "http://127.0.0.1:1";
  for (const wrong of ["", "queue.example", "localhost:8080", "ftp://x", "https://a:b@x", "https://x?a", "https://x#a"]) {
    assert.throws(() => new Client({ url: wrong, key: KEY }), TypeError, wrong);
  }
  for (const wrong of ["", "a b", "é", `${KEY}\r\nx: y`, /** @type {any} */ (undefined)]) {
    assert.throws(() => new Client({ url, key: wrong }), { name: "TypeError", message: /^a key is/ });
  }
  for (const wrong of [{ canvas: "7" }, { timeoutMs: 0 }, { timeoutMs: 0.5 }, { retries: -1 }, { retries: 99 }]) {
    assert.throws(() => new Client({ url, key: KEY, ...wrong }), TypeError, JSON.stringify(wrong));
  }
  const wakeq = new Client({ url, key: KEY });
  for (const id of ["", ".", "..", /** @type {any} */ (undefined)]) {
    await assert.rejects(async () => wakeq.cancel(id), { name: "TypeError", message: /the path needs id/ });
  }
  await assert.rejects(wakeq.emit({ name: "greet", value: { n: NaN } }), { name: "TypeError", message: /NaN.*"n"/ });
  await assert.rejects(wakeq.emit({ name: "greet", value: 1n }), TypeError);
  await assert.rejects(wakeq.emit({ name: "greet" }, { idempotencyKey: "é" }), TypeError);
});
