// A loop that leases events of pulled handlers and runs functions for them. It must never run an
// event whose lease it knows to be over, nor say that one has ended which has not.

import { setMaxListeners } from "node:events";
import { ApiError, TransportError } from "./errors.js";
import { workerName } from "./name.js";
import { Places } from "./places.js";

/** @import { Client } from "./client.js" */
/** @import { Place } from "./places.js" */
/** @import { Schemas, WorkerContext, WorkerHandlers, WorkerOptions } from "./types.js" */

const LEASES = "/v1/canvases/{canvas}/handlers/{module}/{name}/leases";
const EXTEND = "/v1/canvases/{canvas}/handlers/{module}/{name}/leases/{id}/extend";
const COMPLETE = "/v1/canvases/{canvas}/handlers/{module}/{name}/leases/{id}/complete";
const RELEASE = "/v1/canvases/{canvas}/handlers/{module}/{name}/leases/{id}/release";
const CONCURRENCY_MAX = 1000;
const LEASED_MAX = 100;
const WAIT_S_MAX = 20;
/** How much earlier than the client's timeout a request stops to wait. */
const TO_ANSWER_S = 5;
const FIRST_PAUSE_S = 0.5;
const PAUSE_S_MAX = 30;
/** How long functions may take to stop once the grace is over. */
const CUT_OFF_MS = 5000;
/** How long the service leaves a lease at most whose event was cancelled. */
const CANCEL_GRACE_MS = 10_000;
/** What the service stores of an error, and its longest delay. */
const ERROR_MAX = 4000;
const RETRY_S_MAX = 30 * 24 * 3600;
/** The longest result, in bytes. */
const RESULT_MAX = 65_536;
/** What the service says of a lease that does not stand. */
const LOST = [404, 409, 410];

/** Thrown by a function whose event no retry can help: it is among the dead events at once. */
export class DeadError extends Error {
  name = "DeadError";
}

/** Why the signal of an event is aborted. */
export class StopError extends Error {
  name = "StopError";

  /** @param {"lease-lost" | "cancelled" | "shutdown"} code */
  constructor(code) {
    super({
      "lease-lost": "the lease of the event is over: another worker may run it",
      cancelled: "the event was cancelled",
      shutdown: "the worker stops",
    }[code]);
    this.code = code;
  }
}

/** Runs functions for the events of pulled handlers. */
export class Worker {
  #client;
  /** @type {Set<Run>} */
  #runs = new Set();

  /** @param {Client} client whose key has `operate`, `read` and `values` for these handlers */
  constructor(client) {
    this.#client = client;
  }

  /**
   * Runs until SIGTERM or SIGINT, `stop()`, or the abort of `signal`. Then it leases nothing more,
   * releases what has not begun, and resolves when all functions have ended or the grace is over.
   *
   * A function that returns completes its event, and what it returns is the result if the event is
   * kept: JSON of up to 64 KiB. One that throws has it tried again with the
   * handler's delays, or after the error's `retryS` if that is longer. A `DeadError` lets it die.
   * @param {WorkerHandlers} handlers functions by `name`, or by `MODULE/name`
   * @param {WorkerOptions} [options]
   */
  async run(handlers, options = {}) {
    const run = new Run(this.#client, handlers, options);
    this.#runs.add(run);
    try {
      await run.untilStopped();
    } finally {
      this.#runs.delete(run);
    }
  }

  /** Stops as SIGTERM does; what `run` returned resolves when that is done. */
  stop() {
    for (const run of this.#runs) run.stop();
  }
}

/**
 * @typedef {{ module: string, name: string, work: WorkerHandlers[string] }} Served
 * @typedef {Schemas["LeasedEvent"]} Leased
 */

class Run {
  #client;
  #served;
  #places;
  #name;
  #leaseS;
  #graceS;
  #waitS;
  #onError;
  #signals;
  #signal;
  /** Nothing more is leased or begun. */
  #stopping = new AbortController();
  /** The grace is over. */
  #cut = new AbortController();
  /** @type {Set<Promise<void>>} */
  #events = new Set();

  /**
   * @param {Client} client
   * @param {WorkerHandlers} handlers
   * @param {WorkerOptions} options
   */
  constructor(client, handlers, options) {
    const { name, concurrency = 10, leaseS = 60, graceS = 25, signals, signal, onError } = options;
    this.#client = client;
    this.#served = Object.entries(handlers).map(([name, work]) => servedOf(name, work));
    if (this.#served.length === 0) throw new TypeError("a worker needs a function");
    within("concurrency", concurrency, 1, CONCURRENCY_MAX);
    this.#places = new Places(concurrency);
    this.#name = workerName(name);
    this.#leaseS = within("leaseS", leaseS, 1, 3600);
    this.#graceS = within("graceS", graceS, 0, 3600);
    // A lease counts from before its request, so most of it has to be left after the wait.
    const waitS = Math.min(WAIT_S_MAX, this.#leaseS / 3, client.timeoutMs / 1000 - TO_ANSWER_S);
    this.#waitS = Math.max(0, waitS);
    this.#signals = signals ?? ["SIGTERM", "SIGINT"];
    this.#signal = signal;
    this.#onError = onError ?? ((error) => console.error(error));
    // Each event listens: that is no leak.
    setMaxListeners(0, this.#stopping.signal, this.#cut.signal);
  }

  stop() {
    this.#stopping.abort();
  }

  async untilStopped() {
    const stop = () => this.stop();
    this.#signals.forEach((name) => process.on(name, stop));
    this.#signal?.addEventListener("abort", stop);
    if (this.#signal?.aborted) stop();
    try {
      await Promise.all(this.#served.map((served) => this.#serve(served)));
      await this.#finish();
    } finally {
      this.#signals.forEach((name) => process.removeListener(name, stop));
      this.#signal?.removeEventListener("abort", stop);
    }
  }

  /** Waits for the functions that run, and cuts them off when the grace is over. */
  async #finish() {
    const [ended, waited] = [Promise.allSettled(this.#events), new AbortController()];
    await Promise.race([ended, pause(this.#graceS * 1000, waited.signal)]);
    waited.abort();
    this.#cut.abort();
    await ended;
  }

  /**
   * Leases events of one handler until the worker stops.
   * @param {Served} served
   */
  async #serve(served) {
    const stopping = this.#stopping.signal;
    for (let failures = 0; await this.#places.someFree(stopping); ) {
      const sentAt = performance.now();
      const max = Math.min(this.#places.free, LEASED_MAX);
      const body = { max, lease_s: this.#leaseS, wait_s: this.#waitS, worker: this.#name };
      try {
        const path = { module: served.module, name: served.name };
        const { events } = await this.#client.request("POST", LEASES, { path, body, signal: stopping });
        failures = 0;
        for (const leased of events) this.#begin(served, leased, sentAt);
      } catch (error) {
        if (stopping.aborted) return;
        this.#onError(error);
        failures += 1;
        await pause(backoffMs(failures, error), stopping);
      }
    }
  }

  /**
   * @param {Served} served
   * @param {Leased} leased
   * @param {number} sentAt
   */
  #begin(served, leased, sentAt) {
    const lease = new Lease(this.#client, served, leased, this.#leaseS, sentAt, this.#onError);
    const place = this.#places.take();
    const work = this.#work(served, leased, lease, place)
      .catch((error) => this.#onError(error))
      .finally(() => {
        lease.end();
        place.leave();
        this.#events.delete(work);
      });
    this.#events.add(work);
  }

  /**
   * @param {Served} served
   * @param {Leased} leased
   * @param {Lease} lease
   * @param {Place} place
   */
  async #work(served, leased, lease, place) {
    const mayBegin = await place.until(AbortSignal.any([this.#stopping.signal, lease.signal]));
    if (!mayBegin) return lease.release();
    const cutOff = () => lease.stop("shutdown");
    this.#cut.signal.addEventListener("abort", cutOff, { once: true });
    const { signal } = lease;
    /** @type {WorkerContext} */
    const context = {
      signal,
      get leaseUntil() {
        return lease.until;
      },
    };
    const running = Promise.resolve().then(() => served.work(leased, context));
    // A function that does not heed its signal must not keep the worker from stopping.
    const ended = Promise.race([running, lease.afterShutdown(CUT_OFF_MS)]);
    const outcome = await ended.then((returned) => ({ returned }), (error) => ({ error }));
    this.#cut.signal.removeEventListener("abort", cutOff);
    await ("error" in outcome ? this.#failed(lease, outcome.error) : lease.complete(outcome.returned));
  }

  /**
   * @param {Lease} lease
   * @param {unknown} error
   */
  async #failed(lease, error) {
    // What a function throws because it was told to stop is not its failure.
    if (lease.signal.aborted) return lease.release();
    // A release that the service refuses would leave the event to the end of its lease.
    const retryS = /** @type {{ retryS?: unknown } | null | undefined} */ (error)?.retryS;
    const retry_s = typeof retryS === "number" && Math.max(0, Math.min(RETRY_S_MAX, retryS));
    await lease.release({
      error: storable(error),
      ...(error instanceof DeadError ? { dead: true } : {}),
      ...(typeof retry_s === "number" && !(error instanceof DeadError) ? { retry_s } : {}),
    });
  }
}

/** The lease of one event, which extends itself until its end. */
class Lease {
  #client;
  #path;
  #lease;
  #leaseS;
  #onError;
  /** When the lease is over at the latest, by this process's clock. */
  #overAt;
  #stop = new AbortController();
  /** The worker stops, whatever the function was told before. */
  #shutdown = new AbortController();
  #ended = new AbortController();
  /** The grace of a cancelled event has passed. */
  #isOver = false;
  until;

  /**
   * @param {Client} client
   * @param {Served} served
   * @param {Leased} leased
   * @param {number} leaseS
   * @param {number} sentAt
   * @param {(error: unknown) => void} onError
   */
  constructor(client, { module, name }, leased, leaseS, sentAt, onError) {
    this.#client = client;
    this.#path = { module, name, id: leased.id };
    this.#lease = leased.lease;
    this.#leaseS = leaseS;
    this.#onError = onError;
    this.#overAt = sentAt + leaseS * 1000;
    this.until = new Date(leased.lease_until);
    void this.#keep();
  }

  /** Aborted when the function has to stop. */
  get signal() {
    return this.#stop.signal;
  }

  /** @param {"lease-lost" | "cancelled" | "shutdown"} code */
  stop(code) {
    if (code === "shutdown") this.#shutdown.abort();
    if (!this.#stop.signal.aborted) this.#stop.abort(new StopError(code));
  }

  /** Extends nothing any more. */
  end() {
    this.#ended.abort();
  }

  /** Extends the lease each third of it. */
  async #keep() {
    const ended = this.#ended.signal;
    let waitMs = (this.#leaseS * 1000) / 3;
    while (await pause(waitMs, ended)) {
      if (performance.now() >= this.#overAt) return this.stop("lease-lost");
      const sentAt = performance.now();
      try {
        const body = { lease: this.#lease, lease_s: this.#leaseS };
        const sent = { path: this.#path, body, signal: ended };
        const { lease_until, cancelled } = await this.#client.request("POST", EXTEND, sent);
        this.until = new Date(lease_until);
        if (cancelled) return await this.#cancelled(sentAt);
        this.#overAt = sentAt + this.#leaseS * 1000;
        waitMs = (this.#leaseS * 1000) / 3;
      } catch (error) {
        if (ended.aborted) return;
        if (isLost(error)) return this.stop("lease-lost");
        this.#onError(error);
        waitMs = (this.#leaseS * 1000) / 12;
      }
    }
  }

  /**
   * Lets what is left of the lease pass, since the service extends it no more.
   * @param {number} sentAt
   */
  async #cancelled(sentAt) {
    this.#overAt = Math.min(this.#overAt, sentAt + CANCEL_GRACE_MS);
    this.stop("cancelled");
    this.#isOver = await pause(this.#overAt - performance.now(), this.#ended.signal);
  }

  /**
   * Completes the event, with what its function returned as the result.
   * @param {unknown} returned
   */
  async complete(returned) {
    if (this.#isLost()) return;
    await this.#say((sent) => this.#client.request("POST", COMPLETE, sent), this.#resultOf(returned));
  }

  /**
   * A result that can't be stored is reported and left out: the function has done its work.
   * @param {unknown} returned
   */
  #resultOf(returned) {
    if (returned === undefined) return {};
    try {
      const json = JSON.stringify(returned, onlyNumbers);
      if (json === undefined) throw new TypeError("it is not JSON");
      const bytes = Buffer.byteLength(json);
      if (bytes > RESULT_MAX) throw new RangeError(`it has ${bytes} bytes as JSON, the limit is ${RESULT_MAX}`);
      return { result: JSON.parse(json) };
    } catch (error) {
      const words = "what the function returned is not kept as the result of its event";
      this.#onError(new Error(words, { cause: error }));
      return {};
    }
  }

  /** @param {Omit<Schemas["ReleaseRequest"], "lease">} [how] by default as if it had not been leased */
  async release(how = {}) {
    if (this.#isLost()) return;
    await this.#say((sent) => this.#client.request("POST", RELEASE, sent), how);
  }

  /**
   * Rejects when the function should have stopped this long ago because the worker stops.
   * @param {number} afterMs
   */
  afterShutdown(afterMs) {
    return new Promise((_, reject) => {
      const { signal } = this.#shutdown;
      const over = () => void pause(afterMs, this.#ended.signal).then(() => reject(this.signal.reason));
      if (signal.aborted) over();
      else signal.addEventListener("abort", over, { once: true });
    });
  }

  #isLost() {
    return this.#isOver || this.signal.reason?.code === "lease-lost";
  }

  /**
   * Repeats a request while the lease stands, until it is answered.
   * @param {(sent: any) => Promise<unknown>} ask
   * @param {object} how
   */
  async #say(ask, how) {
    const sent = { path: this.#path, body: { lease: this.#lease, ...how } };
    for (let attempt = 1; ; attempt += 1) {
      try {
        return void (await ask(sent));
      } catch (error) {
        // The answer to an earlier attempt was lost: it has taken effect.
        if (attempt > 1 && isLost(error)) return;
        const waitMs = Math.min(backoffMs(attempt, error), (this.#leaseS * 1000) / 6);
        if (!isTemporary(error) || performance.now() + waitMs >= this.#overAt) throw error;
        await pause(waitMs);
      }
    }
  }
}

/**
 * @param {string} handler
 * @param {WorkerHandlers[string]} work
 * @returns {Served}
 */
function servedOf(handler, work) {
  const [name = "", module = "WORKER", more] = handler.split("/").reverse();
  if (more !== undefined || name === "" || module === "") {
    throw new TypeError(`a handler is \`name\` or \`MODULE/name\`, not ${JSON.stringify(handler)}`);
  }
  if (typeof work !== "function") throw new TypeError(`the handler ${handler} needs a function`);
  return { module, name, work };
}

/**
 * As much of an error's message as is stored, without halves of characters.
 * @param {unknown} error
 */
function storable(error) {
  const said = error instanceof Error ? error.message || error.name : String(error);
  return Buffer.from(said.slice(0, ERROR_MAX)).toString() || "failed";
}

/**
 * JSON would make null of NaN and the infinities.
 * @param {string} _name
 * @param {unknown} value
 */
function onlyNumbers(_name, value) {
  if (typeof value === "number" && !Number.isFinite(value)) throw new TypeError(`JSON has no ${value}`);
  return value;
}

/** @param {unknown} error */
function isLost(error) {
  return error instanceof ApiError && LOST.includes(error.status);
}

/** @param {unknown} error */
function isTemporary(error) {
  return (error instanceof ApiError || error instanceof TransportError) && error.isTemporary;
}

/**
 * How long to wait after this many failures: with jitter, so that the workers of a fleet spread.
 * @param {number} failures
 * @param {unknown} error
 */
function backoffMs(failures, error) {
  const backoffS = Math.min(PAUSE_S_MAX, FIRST_PAUSE_S * 2 ** Math.min(failures - 1, 10));
  const askedS = (error instanceof ApiError && error.retryAfterS) || 0;
  return 1000 * Math.max(askedS, backoffS * (0.5 + Math.random() / 2));
}

/**
 * Waits; false if the signal is aborted before.
 * @param {number} milliseconds
 * @param {AbortSignal} [signal]
 * @returns {Promise<boolean>}
 */
function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve(false);
    const timer = setTimeout(end, milliseconds);
    function end() {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve(!signal?.aborted);
    }
    signal?.addEventListener("abort", end);
  });
}

/**
 * @param {string} name
 * @param {number} value
 * @param {number} min
 * @param {number} max
 */
function within(name, value, min, max) {
  if (!(Number.isFinite(value) && value >= min && value <= max)) {
    throw new TypeError(`${name} is a number from ${min} to ${max}`);
  }
  return value;
}
