// Requests with a key, repeated where that is safe. It must never show the key, send it anywhere but
// to the service, or emit twice because an answer was lost.

import { ApiError, TransportError } from "./errors.js";

/** @import { Answer, CallOptions, ClientOptions, Method, PathOf, Rest } from "./types.js" */

const NIL = "00000000-0000-0000-0000-000000000000";
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const VISIBLE = /^[\x21-\x7e]{1,8192}$/;
const TIMEOUT_MS_MAX = 600_000;
const RETRIES_MAX = 10;
/** Longer pauses are the caller's decision. */
const RETRY_AFTER_S_MAX = 30;
const FIRST_PAUSE_S = 0.2;
const ANSWER_BYTES_MAX = 64 * 2 ** 20;

/** Any request of the API, for one canvas. */
export class Requests {
  #base;
  #key;
  #canvas;
  #timeoutMs;
  #retries;
  #fetch;

  /** @param {ClientOptions} options */
  constructor({ url, key, canvas = NIL, timeoutMs = 35_000, retries = 2, fetch = globalThis.fetch }) {
    this.#base = baseOf(url);
    if (typeof key !== "function") checkKey(key);
    this.#key = key;
    if (!UUID.test(canvas)) throw new TypeError("a canvas is a UUID");
    this.#canvas = canvas;
    this.#timeoutMs = within("timeoutMs", timeoutMs, 1, TIMEOUT_MS_MAX);
    this.#retries = within("retries", retries, 0, RETRIES_MAX);
    this.#fetch = fetch;
    if (this.isInTheClear) {
      const words = `the key travels in the clear to ${new URL(this.#base).host}: prefer https://`;
      globalThis.process?.emitWarning ? process.emitWarning(words) : console.warn(words);
    }
  }

  /** How long each attempt waits for its answer. */
  get timeoutMs() {
    return this.#timeoutMs;
  }

  /** Whether the key travels in the clear to another machine. */
  get isInTheClear() {
    const { protocol, hostname } = new URL(this.#base);
    return protocol === "http:" && !/^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(hostname);
  }

  /**
   * Any request of the API, by method and path as in the OpenAPI document. `{canvas}` is the
   * client's, unless `path` has another.
   * @template {Method} M
   * @template {PathOf<M>} P
   * @param {M} method
   * @param {P} path
   * @param {Rest<M, P>} rest
   * @returns {Promise<Answer<M, P>>}
   */
  async request(method, path, ...rest) {
    const options = /** @type {AnyOptions} */ (rest[0] ?? {});
    const url = this.#url(path, { canvas: this.#canvas, ...options.path }, options.query);
    const { signal, idempotencyKey, body } = options;
    if (idempotencyKey !== undefined && !/^[\x21-\x7e]{1,255}$/.test(idempotencyKey)) {
      throw new TypeError("an idempotency key is 1 to 255 visible ASCII characters");
    }
    const sent = body === undefined ? undefined : JSON.stringify(body, onlyNumbers);
    const isRepeatable = options.repeatable ?? (method === "GET" || idempotencyKey !== undefined);
    for (let attempt = 0; ; attempt += 1) {
      try {
        return await this.#attempt({ method, path, url, sent, signal, idempotencyKey });
      } catch (error) {
        const pauseS = attempt < this.#retries ? pauseOf(error, isRepeatable, attempt) : undefined;
        if (pauseS === undefined) throw error;
        await pause(pauseS, signal);
      }
    }
  }

  /**
   * @param {string} path
   * @param {Record<string, string>} values
   * @param {Record<string, unknown>} [query]
   */
  #url(path, values, query = {}) {
    const filled = path.replace(/\{(\w+)\}/g, (_, name) => segment(name, values[name]));
    const url = new URL(this.#base + filled);
    for (const [name, value] of Object.entries(query)) {
      if (value !== undefined && value !== null) url.searchParams.append(name, String(value));
    }
    return url;
  }

  /** @param {Sent} request */
  async #attempt({ method, path, url, sent, signal, idempotencyKey }) {
    const key = typeof this.#key === "function" ? await this.#key() : this.#key;
    checkKey(key);
    /** @type {Record<string, string>} */
    const headers = { authorization: `Bearer ${key}`, accept: "application/json" };
    if (sent !== undefined) headers["content-type"] = "application/json";
    if (idempotencyKey !== undefined) headers["idempotency-key"] = idempotencyKey;
    const timeout = AbortSignal.timeout(this.#timeoutMs);
    const ended = signal ? AbortSignal.any([signal, timeout]) : timeout;
    const fetch = this.#fetch;
    let response, text;
    try {
      // A redirect is an unsuccessful answer: the key goes nowhere else.
      const init = { method, headers, body: sent ?? null, redirect: /** @type {const} */ ("manual"), signal: ended };
      response = await fetch(url, init);
      text = await textOf(response);
    } catch (error) {
      signal?.throwIfAborted();
      if (error instanceof TransportError) throw error;
      const what = timeout.aborted ? `did not answer within ${this.#timeoutMs} ms` : "is not reachable, or hung up";
      throw new TransportError(`${method} ${path}: ${url.origin} ${what}`, true, error);
    }
    return answerOf(`${method} ${path}`, response, text);
  }
}

/**
 * @typedef {CallOptions & { body?: unknown, path?: Record<string, string>, query?: Record<string, unknown> }} AnyOptions
 * @typedef {{ method: Method, path: string, url: URL, sent: string | undefined,
 *   signal: AbortSignal | undefined, idempotencyKey: string | undefined }} Sent
 */

/**
 * @param {string} request
 * @param {Response} response
 * @param {string} text
 * @returns {any}
 */
function answerOf(request, response, text) {
  const { status, headers } = response;
  if (response.ok && text === "") return undefined;
  const isProblem = headers.get("content-type")?.startsWith("application/problem+json");
  let json;
  try {
    json = response.ok || isProblem ? JSON.parse(text) : undefined;
  } catch {
    json = undefined;
  }
  if (response.ok && json !== undefined) return json;
  const retryAfter = headers.get("retry-after") ?? "";
  const retryAfterS = /^\d{1,9}$/.test(retryAfter) ? Number(retryAfter) : undefined;
  const requestId = headers.get("x-request-id") ?? undefined;
  throw new ApiError(request, status, typeof json?.type === "string" ? json : undefined, { retryAfterS, requestId });
}

/** @param {Response} response */
async function textOf(response) {
  const decoder = new TextDecoder();
  let [text, bytes] = ["", 0];
  for await (const part of response.body ?? []) {
    bytes += part.byteLength;
    if (bytes > ANSWER_BYTES_MAX) throw new TransportError("the answer is over 64 MiB: ask for less", false);
    text += decoder.decode(part, { stream: true });
  }
  return text + decoder.decode();
}

/**
 * How long to wait before a request is sent again; undefined if it is not.
 * @param {unknown} error
 * @param {boolean} isRepeatable
 * @param {number} attempt
 */
function pauseOf(error, isRepeatable, attempt) {
  const isApi = error instanceof ApiError;
  if (!(isApi || error instanceof TransportError) || !error.isTemporary) return undefined;
  // A 429 was refused before it had an effect; all else may have had one.
  if (!isRepeatable && !(isApi && error.status === 429)) return undefined;
  const backoffS = FIRST_PAUSE_S * 2 ** attempt * (1 + Math.random());
  const pauseS = Math.max(backoffS, (isApi && error.retryAfterS) || 0);
  return pauseS > RETRY_AFTER_S_MAX ? undefined : pauseS;
}

/**
 * @param {number} seconds
 * @param {AbortSignal | undefined} signal
 */
function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(end, seconds * 1000);
    function end() {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      if (signal?.aborted) reject(signal.reason);
      else resolve(undefined);
    }
    signal?.addEventListener("abort", end);
    if (signal?.aborted) end();
  });
}

/**
 * With an idempotency key: the same for all attempts.
 * @param {CallOptions} [options]
 */
export function once(options = {}) {
  return { ...options, idempotencyKey: options.idempotencyKey ?? crypto.randomUUID() };
}

/** @param {string | URL} url */
function baseOf(url) {
  const parsed = URL.canParse(String(url)) ? new URL(url) : undefined;
  if (!parsed || !["http:", "https:"].includes(parsed.protocol) || parsed.search || parsed.hash) {
    throw new TypeError("a service's URL looks like https://queue.example, or http://127.0.0.1:8080");
  }
  if (parsed.username || parsed.password) throw new TypeError("a service's URL has no user or password: pass a key");
  return parsed.origin + parsed.pathname.replace(/\/+$/, "");
}

/** @param {unknown} key */
function checkKey(key) {
  if (typeof key !== "string" || !VISIBLE.test(key)) {
    throw new TypeError("a key is `wakeq_…` or a Google ID token, without blanks");
  }
}

/**
 * @param {string} name
 * @param {number} value
 * @param {number} min
 * @param {number} max
 */
function within(name, value, min, max) {
  if (!(Number.isInteger(value) && value >= min && value <= max)) {
    throw new TypeError(`${name} is an integer from ${min} to ${max}`);
  }
  return value;
}

/**
 * A value in a path. Not "." or "..", which would lead to another path.
 * @param {string} name
 * @param {string | undefined} value
 */
function segment(name, value) {
  if (typeof value !== "string" || ["", ".", ".."].includes(value)) {
    throw new TypeError(`the path needs ${name}, as a string that is not empty`);
  }
  return encodeURIComponent(value);
}

/**
 * JSON would make null of NaN and the infinities.
 * @param {string} name
 * @param {unknown} value
 */
function onlyNumbers(name, value) {
  if (typeof value === "number" && !Number.isFinite(value)) {
    throw new TypeError(`JSON has no ${value}${name && `, the value of ${JSON.stringify(name)}`}`);
  }
  return value;
}
