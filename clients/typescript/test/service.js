// What the tests share: the service that the environment names, and small servers in front of it.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { ApiError, Client } from "wakeq";

export const { WAKEQ_SERVER: url = "", WAKEQ_KEY: key = "", WAKEQ_OTHER_KEY: otherKey = "" } = process.env;
/** Reads every canvas. */
export const wideKey = process.env.WAKEQ_WIDE_KEY ?? "";
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
