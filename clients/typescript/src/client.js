// A thin client of the HTTP API: one method per call, and `request` for all the others. It must
// never show the key, send it anywhere but to the service, or emit twice because an answer was lost.

import { ApiError, TransportError } from "./errors.js";

/** @import { Answer, CallOptions, ClientOptions, Method, OfHandler, PathOf, Rest, Schemas } from "./types.js" */

const NIL = "00000000-0000-0000-0000-000000000000";
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const VISIBLE = /^[\x21-\x7e]{1,8192}$/;
const TIMEOUT_MS_MAX = 600_000;
const RETRIES_MAX = 10;
/** Longer pauses are the caller's decision. */
const RETRY_AFTER_S_MAX = 30;
const FIRST_PAUSE_S = 0.2;
const ANSWER_BYTES_MAX = 64 * 2 ** 20;

/** The API of a canvas. Its methods throw an `ApiError` or a `TransportError`. */
export class Client {
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
   * Emits an event; resolved once it is committed. Attempts after a lost answer emit nothing twice.
   * @param {Schemas["NewEvent"]} event
   * @param {CallOptions} [options]
   * @returns {Promise<Schemas["Emitted"]>}
   */
  async emit(event, options) {
    const sent = { ...once(options), body: event };
    const answer = await this.request("POST", "/v1/canvases/{canvas}/events", sent);
    return /** @type {Schemas["Emitted"]} */ (answer);
  }

  /**
   * Emits up to 1,000 events, all or none; answers in their order.
   * @param {Schemas["NewEvent"][]} events
   * @param {CallOptions} [options]
   */
  async emitAll(events, options) {
    const sent = { ...once(options), body: { events } };
    return (await this.request("POST", "/v1/canvases/{canvas}/events:batch", sent)).events;
  }

  /**
   * An event with its value. One that has ended is an `ApiError` with the code `not-found`, unless
   * it is kept.
   * @param {string} id
   * @param {CallOptions} [options]
   */
  event(id, options) {
    const sent = { ...options, path: { id }, query: /** @type {const} */ ({ view: "full" }) };
    return this.request("GET", "/v1/canvases/{canvas}/events/{id}", sent);
  }

  /**
   * Why an event is not running, and what happens next; without its value.
   * @param {string} id
   * @param {CallOptions} [options]
   */
  explain(id, options) {
    return this.request("GET", "/v1/canvases/{canvas}/events/{id}", { ...options, path: { id } });
  }

  /**
   * Deletes an event that is not running; for a running one the error's code is `not-waiting`. With
   * `running`, the handler of a running event is told to stop, and `next` of the answer says what
   * happens then.
   * @param {string} id
   * @param {{ running?: boolean } & CallOptions} [options]
   */
  cancel(id, { running, ...options } = {}) {
    const sent = { ...options, path: { id }, query: { running } };
    return this.request("POST", "/v1/canvases/{canvas}/events/{id}/cancel", sent);
  }

  /**
   * What the attempts of an event have left to the next one; without that the error's code is
   * `not-found`.
   * @param {string} id
   * @param {CallOptions} [options]
   */
  checkpoint(id, options) {
    return this.request("GET", "/v1/canvases/{canvas}/events/{id}/checkpoint", { ...options, path: { id } });
  }

  /**
   * Leaves a value of at most 64 KiB of JSON to the next attempt of an event. `claim` is the header
   * `wakeq-claim` of a delivery, or the `lease`. If it does not stand any more, the error's
   * code is `lease-over`, and the attempt has to stop.
   * @param {string} id
   * @param {string} claim
   * @param {unknown} value
   * @param {CallOptions} [options]
   */
  async storeCheckpoint(id, claim, value, options) {
    const sent = { ...options, repeatable: true, path: { id }, body: { claim, value } };
    await this.request("PUT", "/v1/canvases/{canvas}/events/{id}/checkpoint", sent);
  }

  /**
   * All handlers of the canvas, their counts, rules and targets: a request for each thousand.
   * @param {CallOptions} [options]
   */
  async handlers(options) {
    /** @type {Schemas["Handler"][]} */
    const found = [];
    /** @type {string | undefined} */
    let cursor;
    do {
      const query = cursor === undefined ? { limit: 1000 } : { limit: 1000, cursor };
      const page = await this.request("GET", "/v1/canvases/{canvas}/handlers", { ...options, query });
      found.push(...page.items);
      cursor = page.next_cursor ?? undefined;
    } while (cursor !== undefined);
    return found;
  }

  /**
   * Pauses a handler on this canvas: afterwards no worker claims an event of it.
   * @param {string} name
   * @param {Schemas["StopRequest"] & OfHandler & CallOptions} [options]
   */
  pause(name, { module = "WORKER", signal, ...body } = {}) {
    const sent = { signal, repeatable: true, path: { module, name }, body };
    return this.request("PUT", "/v1/canvases/{canvas}/handlers/{module}/{name}/pause", sent);
  }

  /**
   * Lifts the pause, and wakes what waited.
   * @param {string} name
   * @param {OfHandler & CallOptions} [options]
   */
  unpause(name, { module = "WORKER", ...options } = {}) {
    const sent = { ...options, path: { module, name } };
    return this.request("DELETE", "/v1/canvases/{canvas}/handlers/{module}/{name}/pause", sent);
  }

  /**
   * Pauses the whole canvas: afterwards no worker claims an event of it. Emits are accepted, and
   * their events wait.
   * @param {Schemas["StopRequest"] & CallOptions} [options]
   */
  pauseCanvas({ signal, ...body } = {}) {
    return this.request("PUT", "/v1/canvases/{canvas}/pause", { signal, repeatable: true, body });
  }

  /**
   * Lifts the pause of the whole canvas, and wakes what waited; handlers that are paused themselves
   * stay so.
   * @param {CallOptions} [options]
   */
  unpauseCanvas(options = {}) {
    return this.request("DELETE", "/v1/canvases/{canvas}/pause", options);
  }

  /**
   * Lets a `Worker` lease the events of a handler: no other worker and no target gets them from
   * then on. Repeated, it replaces the policy.
   * @param {string} name
   * @param {PullPolicy & OfHandler & CallOptions} [options]
   */
  pull(name, { module = "WORKER", signal, ...body } = {}) {
    const sent = { signal, repeatable: true, path: { module, name }, body };
    return this.request("PUT", "/v1/canvases/{canvas}/handlers/{module}/{name}/pull", sent);
  }

  /**
   * Gives the events of a pulled handler to workers and targets again.
   * @param {string} name
   * @param {OfHandler & CallOptions} [options]
   */
  unpull(name, { module = "WORKER", ...options } = {}) {
    const sent = { ...options, path: { module, name } };
    return this.request("DELETE", "/v1/canvases/{canvas}/handlers/{module}/{name}/pull", sent);
  }

  /**
   * What happened to the events of a handler, or without a `name` of the canvas, in columns for a
   * chart. Default: the last day by the minute.
   * @param {StatisticsRange & OfHandler & CallOptions} [options]
   */
  statistics({ name, module = "WORKER", signal, ...query } = {}) {
    if (name === undefined) return this.request("GET", "/v1/canvases/{canvas}/statistics", { signal, query });
    const sent = { signal, path: { module, name }, query };
    return this.request("GET", "/v1/canvases/{canvas}/handlers/{module}/{name}/statistics", sent);
  }

  /**
   * A page of dead events, oldest first: pass `next_cursor` as `cursor`, with the same filter, for
   * the next one.
   * @param {DeadFilter & CallOptions} [options]
   */
  deadEvents({ signal, ...query } = {}) {
    return this.request("GET", "/v1/canvases/{canvas}/dead-events", { signal, query });
  }

  /**
   * Emits dead events again, up to 10,000: on `more`, repeat with the answer's `before`, without
   * `all`.
   * @param {Schemas["BulkRequest"]} which a filter, or `{ all: true }`
   * @param {CallOptions} [options]
   */
  redrive(which, options) {
    return this.request("POST", "/v1/canvases/{canvas}/dead-events/redrive", { ...options, body: which });
  }

  /**
   * Emits one dead event again.
   * @param {string} id
   * @param {CallOptions} [options]
   */
  redriveOne(id, options) {
    const sent = { ...options, path: { id } };
    return this.request("POST", "/v1/canvases/{canvas}/dead-events/{id}/redrive", sent);
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
 * How events of a pulled handler are tried again.
 * @typedef {object} PullPolicy
 * @property {number} [retries] after the first failure; default 2
 * @property {number} [delay_s] of the first retry; default 300
 * @property {number} [factor] of each further delay; default 1
 * @property {number} [delay_max_s] default a day
 * @property {"skip" | "halt"} [on_death] what becomes of later events of the object of one that dies
 */

/**
 * Which dead events to list.
 * @typedef {object} DeadFilter
 * @property {string} [module]
 * @property {string} [name]
 * @property {string} [since] died at or after this time
 * @property {string} [before]
 * @property {number} [limit] 1 to 1,000
 * @property {string} [cursor]
 */

/**
 * Which time statistics are of, and in which steps.
 * @typedef {object} StatisticsRange
 * @property {string} [name] the handler's
 * @property {string} [from]
 * @property {string} [to]
 * @property {number} [step_s] whole minutes, and whole hours if the time begins more than a day ago
 */

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
function once(options = {}) {
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
