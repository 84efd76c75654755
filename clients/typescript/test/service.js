// What the tests share: the service that the environment names, and small servers in front of it.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { ApiError, Client } from "wakeq";

export const { WAKEQ_SERVER: url = "", WAKEQ_KEY: key = "", WAKEQ_OTHER_KEY: otherKey = "" } = process.env;
/** Reads every canvas. */
export const wideKey = process.env.WAKEQ_WIDE_KEY ?? "";
/** An admin's, of the other tenant. */
export const adminKey = process.env.WAKEQ_ADMIN_KEY ?? "";
/** A queue that gets the events with its name, and that nothing works off. */
export const queue = process.env.WAKEQ_QUEUE ?? "";
export const otherCanvas = process.env.WAKEQ_OTHER_CANVAS ?? "00000000-0000-0000-0000-000000000007";

/** Whether to skip what needs a service. */
export const skip = url && key && otherKey ? false : "WAKEQ_SERVER, WAKEQ_KEY and WAKEQ_OTHER_KEY name a service";

/** @param {Partial<import("wakeq").ClientOptions>} [options] */
export const client = (options) => new Client({ url, key, ...options });

/** A handler of no other test. */
export const freshName = () => `client-${randomUUID()}`;

/** Of another tenant. */
export const other = () => client({ key: otherKey, canvas: otherCanvas });

/**
 * Emits events of a handler, and leases them.
 * @param {Client} wakeq
 * @param {string} name
 * @param {Omit<import("wakeq").Schemas["NewEvent"], "name">} event
 * @param {{ count?: number, worker?: string, on_death?: "skip" | "halt" }} [how]
 */
export async function leased(wakeq, name, event, { count = 1, worker, on_death } = {}) {
  await wakeq.pull(name, { retries: 0, ...(on_death && { on_death }) });
  const emitted = await wakeq.emitAll(Array.from({ length: count }, () => ({ ...event, name })));
  const path = { module: "WORKER", name };
  const sent = { path, body: { max: 10, lease_s: 60, ...(worker && { worker }) } };
  /** @type {{ id: string, lease: string }[]} */
  const found = [];
  // A lease passes over what the service holds locked at that moment: the next one has it.
  const events = await until(async () => {
    const lease = await wakeq.request("POST", "/v1/canvases/{canvas}/handlers/{module}/{name}/leases", sent);
    found.push(...lease.events);
    return found.length < count ? undefined : found;
  });
  assert.deepEqual(events.map(({ id }) => id).sort(), emitted.map(({ id }) => id).sort());
  return events.map(({ id, lease }) => ({
    id,
    /** @param {string} [error] it dies of */
    release: async (error) => {
      const sent = { path: { ...path, id }, body: { lease, ...(error && { error, dead: true }) } };
      await wakeq.request("POST", "/v1/canvases/{canvas}/handlers/{module}/{name}/leases/{id}/release", sent);
    },
  }));
}

/**
 * The `id` of each item of a list.
 * @param {AsyncIterable<{ id: string }>} list
 */
export async function idsOf(list) {
  const ids = [];
  for await (const { id } of list) ids.push(id);
  return ids;
}

/**
 * @param {Promise<unknown> | (() => Promise<unknown>)} call
 * @param {number} status
 * @param {string} code
 */
export async function fails(call, status, code) {
  const called = typeof call === "function" ? call() : call;
  const error = await called.then(() => assert.fail("it succeeded"), (error) => error);
  assert.ok(error instanceof ApiError, String(error));
  assert.deepEqual([error.status, error.code], [status, code], String(error));
  assert.equal(error.type, `urn:wakeq:problem:${code}`);
  assert.ok(error.title && error.detail && error.requestId);
  assert.ok(error.message.includes(error.detail) && error.message.includes(error.requestId));
  return error;
}

/**
 * Asks until there is an answer.
 * @template T
 * @param {() => Promise<T | undefined>} ask
 */
export async function until(ask) {
  for (const end = Date.now() + 60_000; Date.now() < end; ) {
    const answer = await ask();
    if (answer !== undefined) return answer;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error("it did not happen within a minute");
}

/**
 * A server that answers as it is told, until the test ends.
 * @param {import("node:test").TestContext} context
 * @param {import("node:http").RequestListener} listener
 */
export async function serving(context, listener) {
  const server = createServer(listener);
  await new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(undefined)));
  context.after(() => {
    server.close();
    server.closeAllConnections();
  });
  const address = /** @type {import("node:net").AddressInfo} */ (server.address());
  return `http://127.0.0.1:${address.port}`;
}
