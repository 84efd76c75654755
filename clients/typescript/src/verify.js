// Verifies deliveries to HTTP targets: Standard Webhooks, over the raw bytes of the body. It never
// parses a body whose signature it has not checked.

import { createHmac, timingSafeEqual } from "node:crypto";

const TOLERANCE_S = 300;
const SECRET = /^whsec_([A-Za-z0-9+/]+={0,2})$/;
const SECRET_BYTES = { min: 24, max: 64 };

/** A delivery that is not from wakeq, or is too old: answer it with 401. */
export class SignatureError extends Error {
  name = "SignatureError";
}

/**
 * A verified delivery. The signature covers id, time and value, not the other fields.
 * @typedef {object} Delivery
 * @property {string} id the event's id, the same in every attempt: ignore one that you have processed
 * @property {Date} sentAt when this attempt was signed
 * @property {string | undefined} module
 * @property {string | undefined} name the handler's name
 * @property {string | undefined} modifier
 * @property {string | undefined} canvas the tenant
 * @property {number | undefined} attempt from 1
 * @property {unknown} value the event's value
 */

/**
 * Checks the signature and the time of a delivery.
 * @param {Headers | Record<string, string | string[] | undefined>} headers of the request, also those
 *   of `node:http`
 * @param {Uint8Array | ArrayBuffer} body as received: not parsed, not decoded
 * @param {string | readonly string[]} secrets `whsec_…`; during a rotation both
 * @param {Date} [now]
 * @returns {Delivery}
 * @throws {SignatureError} if the delivery is to be refused
 */
export function verify(headers, body, secrets, now = new Date()) {
  const keys = (typeof secrets === "string" ? [secrets] : [...secrets]).map(keyOf);
  if (keys.length === 0) throw new TypeError("verify needs a secret");
  const bytes = bytesOf(body);
  const header = reader(headers);

  const id = needed(header, "webhook-id");
  const time = needed(header, "webhook-timestamp");
  const given = needed(header, "webhook-signature").split(" ");
  const seconds = /^\d{1,12}$/.test(time) ? Number(time) : NaN;
  if (!(Math.abs(now.getTime() / 1000 - seconds) <= TOLERANCE_S)) {
    throw new SignatureError("webhook-timestamp is more than five minutes off: a repeat, or a wrong clock");
  }
  const expected = keys.map((key) => signature(key, `${id}.${time}.`, bytes));
  if (!expected.some((mine) => given.some((theirs) => isSame(mine, theirs)))) {
    throw new SignatureError("no signature matches: another secret, or a body that is not as it was sent");
  }
  return delivery(id, seconds, header, bytes);
}

/**
 * @param {string} id
 * @param {number} seconds
 * @param {(name: string) => string | undefined} header
 * @param {Uint8Array} bytes
 * @returns {Delivery}
 */
function delivery(id, seconds, header, bytes) {
  const [module, name, modifier] = header("ce-type")?.split("/") ?? [];
  const attempt = header("wakeq-attempt");
  return {
    id,
    sentAt: new Date(seconds * 1000),
    module,
    name,
    modifier,
    canvas: header("ce-source")?.split("/").pop(),
    attempt: attempt === undefined ? undefined : Number(attempt),
    value: JSON.parse(new TextDecoder().decode(bytes)),
  };
}

/** @param {string} secret */
function keyOf(secret) {
  const base64 = typeof secret === "string" ? SECRET.exec(secret)?.[1] : undefined;
  const key = Buffer.from(base64 ?? "", "base64");
  if (key.length < SECRET_BYTES.min || key.length > SECRET_BYTES.max) {
    throw new TypeError("a secret is `whsec_` and 24 to 64 bytes in base64");
  }
  return key;
}

/** @param {Uint8Array | ArrayBuffer} body */
function bytesOf(body) {
  if (body instanceof Uint8Array) return body;
  if (body instanceof ArrayBuffer) return new Uint8Array(body);
  throw new TypeError("verify needs the body's bytes as received, before a framework parses or decodes them");
}

/**
 * @param {Headers | Record<string, string | string[] | undefined>} headers
 * @returns {(name: string) => string | undefined}
 */
function reader(headers) {
  const entries = typeof headers.entries === "function" ? headers.entries() : Object.entries(headers);
  const values = new Map();
  for (const [name, value] of /** @type {Iterable<[string, string | string[] | undefined]>} */ (entries)) {
    if (value !== undefined) values.set(name.toLowerCase(), String(value));
  }
  return (name) => values.get(name);
}

/**
 * @param {(name: string) => string | undefined} header
 * @param {string} name
 */
function needed(header, name) {
  const value = header(name);
  if (!value) throw new SignatureError(`the header ${name} is missing`);
  return value;
}

/**
 * @param {Uint8Array} key
 * @param {string} head
 * @param {Uint8Array} body
 */
function signature(key, head, body) {
  return `v1,${createHmac("sha256", key).update(head).update(body).digest("base64")}`;
}

/**
 * In a time that does not depend on the contents.
 * @param {string} mine
 * @param {string} theirs
 */
function isSame(mine, theirs) {
  const [left, right] = [Buffer.from(mine), Buffer.from(theirs)];
  return left.length === right.length && timingSafeEqual(left, right);
}
