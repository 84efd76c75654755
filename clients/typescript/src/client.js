// A thin client of the HTTP API: one method per call, and `request` for all the others. Here are
// the calls about one event or one handler. Those about many events and limits are in
// `operating.js`, about blocks, workers and queues in `administering.js`, and about crons in
// `scheduling.js`.

import { Operating } from "./operating.js";
import { each, PAGE } from "./pages.js";
import { once } from "./requests.js";

/** @import { CallOptions, FilterOf, OfHandler, Schemas } from "./types.js" */

/** The API of a canvas. Its methods throw an `ApiError` or a `TransportError`. */
export class Client extends Operating {
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
   * Makes an event that waits due at once; for a running one the error's code is `not-waiting`. A
   * pause or a block still holds it.
   * @param {string} id
   * @param {CallOptions} [options]
   */
  runNow(id, options) {
    return this.request("POST", "/v1/canvases/{canvas}/events/{id}/run-now", { ...options, path: { id } });
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
   * A handler: its counts, the rules that stop it, and its targets. One without any has counts
   * of 0.
   * @param {string} name
   * @param {OfHandler & CallOptions} [options]
   */
  handler(name, { module = "WORKER", ...options } = {}) {
    const sent = { ...options, path: { module, name } };
    return this.request("GET", "/v1/canvases/{canvas}/handlers/{module}/{name}", sent);
  }

  /**
   * The last attempts at the events of a handler, the latest first, up to 100: those that failed,
   * were too early, or ended an event that is kept. Those of one event are in `explain`.
   * @param {string} name
   * @param {Omit<FilterOf<"/v1/canvases/{canvas}/attempts">, "name"> & CallOptions} [options]
   */
  attempts(name, { signal, ...query } = {}) {
    return this.request("GET", "/v1/canvases/{canvas}/attempts", { signal, query: { name, ...query } });
  }

  /**
   * How many events of the canvas, or of the handler with a `name`, are due and free to run: at most
   * 10,000 are counted.
   * @param {FilterOf<"/v1/canvases/{canvas}/depth"> & CallOptions} [filter]
   */
  depth({ signal, ...query } = {}) {
    return this.request("GET", "/v1/canvases/{canvas}/depth", { signal, query });
  }

  /**
   * Deletes the events of a handler that are not running, up to 10,000: on `more`, repeat with the
   * answer's `before`. With `dry_run` they are only counted.
   * @param {string} name
   * @param {Schemas["PurgeRequest"] & OfHandler & CallOptions} [options]
   */
  purge(name, { module = "WORKER", signal, ...body } = {}) {
    const sent = { signal, path: { module, name }, body };
    return this.request("POST", "/v1/canvases/{canvas}/handlers/{module}/{name}/purge", sent);
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
   * Registers an HTTP target, which gets the events of a handler, or replaces it. A secret that was
   * generated is in this answer only: if that is lost, ask for another with `rotate_secret`.
   * @param {string} name
   * @param {Schemas["PutTarget"]} target
   * @param {OfHandler & CallOptions} [options]
   */
  setTarget(name, target, { module = "WORKER", ...options } = {}) {
    const sent = { ...options, path: { module, name }, body: target };
    return this.request("PUT", "/v1/canvases/{canvas}/handlers/{module}/{name}", sent);
  }

  /**
   * A page of the targets of the canvas, or of the handler with a `name`.
   * @param {FilterOf<"/v1/canvases/{canvas}/targets"> & CallOptions} [filter]
   */
  targets({ signal, ...query } = {}) {
    return this.request("GET", "/v1/canvases/{canvas}/targets", { signal, query });
  }

  /**
   * All targets of the canvas, or of the handler with a `name`, page by page.
   * @param {FilterOf<"/v1/canvases/{canvas}/targets"> & CallOptions} [filter]
   */
  eachTarget(filter = {}) {
    return each((cursor) => this.targets({ limit: PAGE, ...filter, cursor }), filter.cursor);
  }

  /**
   * Deletes the target of a handler, whose events then wait.
   * @param {string} name
   * @param {OfHandler & CallOptions} [options]
   */
  async removeTarget(name, { module = "WORKER", ...options } = {}) {
    const sent = { ...options, path: { module, name } };
    await this.request("DELETE", "/v1/canvases/{canvas}/handlers/{module}/{name}", sent);
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
 * Which time statistics are of, and in which steps.
 * @typedef {object} StatisticsRange
 * @property {string} [name] the handler's
 * @property {string} [from]
 * @property {string} [to]
 * @property {number} [step_s] whole minutes, and whole hours if the time begins more than a day ago
 */
