// Calls about many events at once, and about what their canvas allows: lists, counts, dead events
// and their error groups, halted objects, batches, operations, limits and switches. Lists come as
// pages, or item by item.

import { Administering } from "./administering.js";
import { each, PAGE } from "./pages.js";
import { once } from "./requests.js";

/** @import { CallOptions, FilterOf, OfHandler, Schemas } from "./types.js" */

export class Operating extends Administering {
  /**
   * A page of events that have not ended, by handler and due time: pass `next_cursor` as `cursor`,
   * with the same filter, for the next one. It may be short or empty although more follow.
   * @param {FilterOf<"/v1/canvases/{canvas}/events"> & CallOptions} [filter]
   */
  events({ signal, ...filter } = {}) {
    return this.request("GET", "/v1/canvases/{canvas}/events", { signal, query: joined(filter) });
  }

  /**
   * All events that have not ended and match a filter, page by page.
   * @param {FilterOf<"/v1/canvases/{canvas}/events"> & CallOptions} [filter]
   */
  eachEvent(filter = {}) {
    return each((cursor) => this.events({ limit: PAGE, ...filter, cursor }), filter.cursor);
  }

  /**
   * How many events match a filter, of up to 10,000 that are examined after the `cursor`, which is
   * the `next_cursor` of the previous count. With the state `dead` alone, dead events are counted.
   * @param {FilterOf<"/v1/canvases/{canvas}/events/count"> & CallOptions} [filter]
   */
  countEvents({ signal, ...filter } = {}) {
    return this.request("GET", "/v1/canvases/{canvas}/events/count", { signal, query: joined(filter) });
  }

  /**
   * Replaces the tags of an event.
   * @param {string} id
   * @param {string[]} tags
   * @param {CallOptions} [options]
   */
  setTags(id, tags, options) {
    const sent = { ...options, path: { id }, body: { tags } };
    return this.request("PUT", "/v1/canvases/{canvas}/events/{id}/tags", sent);
  }

  /**
   * Gives an event that waits another due time, earlier or later.
   * @param {string} id
   * @param {Schemas["SetDue"]} due `delay_s` from now, or `delay_until`
   * @param {CallOptions} [options]
   */
  setDue(id, due, options) {
    return this.request("PUT", "/v1/canvases/{canvas}/events/{id}/due", { ...options, path: { id }, body: due });
  }

  /**
   * A page of events that have ended and are kept, the latest first.
   * @param {FilterOf<"/v1/canvases/{canvas}/ended-events"> & CallOptions} [filter]
   */
  endedEvents({ signal, ...filter } = {}) {
    return this.request("GET", "/v1/canvases/{canvas}/ended-events", { signal, query: joined(filter) });
  }

  /**
   * All events that have ended, are kept and match a filter, page by page.
   * @param {FilterOf<"/v1/canvases/{canvas}/ended-events"> & CallOptions} [filter]
   */
  eachEndedEvent(filter = {}) {
    return each((cursor) => this.endedEvents({ limit: PAGE, ...filter, cursor }), filter.cursor);
  }

  /**
   * How many events that have ended and are kept match a filter, of as many as a page examines after
   * the `cursor`, which is the `next_cursor` of the previous count.
   * @param {FilterOf<"/v1/canvases/{canvas}/ended-events/count"> & CallOptions} [filter]
   */
  countEndedEvents({ signal, ...filter } = {}) {
    return this.request("GET", "/v1/canvases/{canvas}/ended-events/count", { signal, query: joined(filter) });
  }

  /**
   * A page of dead events, the latest first: pass `next_cursor` as `cursor`, with the same filter,
   * for the next one.
   * @param {FilterOf<"/v1/canvases/{canvas}/dead-events"> & CallOptions} [filter]
   */
  deadEvents({ signal, ...filter } = {}) {
    return this.request("GET", "/v1/canvases/{canvas}/dead-events", { signal, query: joined(filter) });
  }

  /**
   * All dead events that match a filter, page by page.
   * @param {FilterOf<"/v1/canvases/{canvas}/dead-events"> & CallOptions} [filter]
   */
  eachDeadEvent(filter = {}) {
    return each((cursor) => this.deadEvents({ limit: PAGE, ...filter, cursor }), filter.cursor);
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
   * Deletes dead events, up to 10,000: on `more`, repeat with the answer's `before`, without `all`.
   * @param {Schemas["BulkRequest"]} which a filter, or `{ all: true }`
   * @param {CallOptions} [options]
   */
  deleteDead(which, options) {
    return this.request("POST", "/v1/canvases/{canvas}/dead-events/delete", { ...options, body: which });
  }

  /**
   * A page of error groups: dead events of a handler that died of the same error. Those with the
   * most events come first, or with the `order` `last_died` those of which one died last.
   * @param {FilterOf<"/v1/canvases/{canvas}/dead-events/groups"> & CallOptions} [filter]
   */
  errorGroups({ signal, ...query } = {}) {
    return this.request("GET", "/v1/canvases/{canvas}/dead-events/groups", { signal, query });
  }

  /**
   * All error groups that match a filter, page by page.
   * @param {FilterOf<"/v1/canvases/{canvas}/dead-events/groups"> & CallOptions} [filter]
   */
  eachErrorGroup(filter = {}) {
    return each((cursor) => this.errorGroups({ limit: PAGE, ...filter, cursor }), filter.cursor);
  }

  /**
   * An error group, which is the `error_group` of dead events, and of filters.
   * @param {string} id
   * @param {CallOptions} [options]
   */
  errorGroup(id, options) {
    const sent = { ...options, path: { error_group: id } };
    return this.request("GET", "/v1/canvases/{canvas}/dead-events/groups/{error_group}", sent);
  }

  /**
   * Marks an error group as known, with a `note`. Repeated, it replaces the mark.
   * @param {string} id
   * @param {Schemas["KnowError"] & CallOptions} [options]
   */
  knowError(id, { signal, ...body } = {}) {
    const sent = { signal, repeatable: true, path: { error_group: id }, body };
    return this.request("PUT", "/v1/canvases/{canvas}/dead-events/groups/{error_group}/known", sent);
  }

  /**
   * Removes the mark of an error group.
   * @param {string} id
   * @param {CallOptions} [options]
   */
  async forgetError(id, options) {
    const sent = { ...options, path: { error_group: id } };
    await this.request("DELETE", "/v1/canvases/{canvas}/dead-events/groups/{error_group}/known", sent);
  }

  /**
   * A page of objects that are halted by a dead event, the longest halted first: redrive that
   * event, or skip it.
   * @param {FilterOf<"/v1/canvases/{canvas}/halted-objects"> & CallOptions} [filter]
   */
  haltedObjects({ signal, ...query } = {}) {
    return this.request("GET", "/v1/canvases/{canvas}/halted-objects", { signal, query });
  }

  /**
   * All halted objects, page by page.
   * @param {FilterOf<"/v1/canvases/{canvas}/halted-objects"> & CallOptions} [filter]
   */
  eachHaltedObject(filter = {}) {
    return each((cursor) => this.haltedObjects({ limit: PAGE, ...filter, cursor }), filter.cursor);
  }

  /**
   * Resumes an object for a handler without its dead event.
   * @param {string} object
   * @param {string} name
   * @param {OfHandler & CallOptions} [options]
   */
  skipObject(object, name, { module = "WORKER", ...options } = {}) {
    const sent = { ...options, path: { object }, body: { module, name } };
    return this.request("POST", "/v1/canvases/{canvas}/objects/{object}/skip", sent);
  }

  /**
   * Opens a batch, with the event to emit at its end. Opening it again with the same event changes
   * nothing. Its members are emitted with its name as `batch`.
   * @param {string} name
   * @param {Schemas["NewBatchEnd"]} onEnd
   * @param {CallOptions} [options]
   */
  openBatch(name, onEnd, options) {
    const sent = { repeatable: true, ...options, path: { batch: name }, body: { on_end: onEnd } };
    return this.request("POST", "/v1/canvases/{canvas}/batches/{batch}", sent);
  }

  /**
   * Closes a batch: no more members come, except from its members. Its event is emitted once the
   * last of them has ended.
   * @param {string} name
   * @param {CallOptions} [options]
   */
  closeBatch(name, options) {
    const sent = { repeatable: true, ...options, path: { batch: name } };
    return this.request("POST", "/v1/canvases/{canvas}/batches/{batch}/close", sent);
  }

  /**
   * A batch, with how many of its members have ended and are left.
   * @param {string} name
   * @param {CallOptions} [options]
   */
  batch(name, options) {
    return this.request("GET", "/v1/canvases/{canvas}/batches/{batch}", { ...options, path: { batch: name } });
  }

  /**
   * A page of the batches, by name.
   * @param {FilterOf<"/v1/canvases/{canvas}/batches"> & CallOptions} [options]
   */
  batches({ signal, ...query } = {}) {
    return this.request("GET", "/v1/canvases/{canvas}/batches", { signal, query });
  }

  /**
   * All batches, page by page.
   * @param {FilterOf<"/v1/canvases/{canvas}/batches"> & CallOptions} [options]
   */
  eachBatch(options = {}) {
    return each((cursor) => this.batches({ limit: PAGE, ...options, cursor }), options.cursor);
  }

  /**
   * Gives a batch up: its event is never emitted, and its members stay as they are.
   * @param {string} name
   * @param {CallOptions} [options]
   */
  async cancelBatch(name, options) {
    await this.request("DELETE", "/v1/canvases/{canvas}/batches/{batch}", { ...options, path: { batch: name } });
  }

  /**
   * Begins an operation on many events. It returns at once, and the service carries the operation
   * on: `operation` says how far it has come. Attempts after a lost answer begin nothing twice.
   * @param {Schemas["NewOperation"]} operation
   * @param {CallOptions} [options]
   */
  beginOperation(operation, options) {
    return this.request("POST", "/v1/canvases/{canvas}/operations", { ...once(options), body: operation });
  }

  /**
   * What an operation would change.
   * @param {Schemas["NewOperation"]} operation
   * @param {CallOptions} [options]
   */
  previewOperation(operation, options) {
    const sent = { repeatable: true, ...options, body: operation };
    return this.request("POST", "/v1/canvases/{canvas}/operations/preview", sent);
  }

  /**
   * An operation, and how far it has come.
   * @param {string} id
   * @param {CallOptions} [options]
   */
  operation(id, options) {
    const sent = { ...options, path: { operation: id } };
    return this.request("GET", "/v1/canvases/{canvas}/operations/{operation}", sent);
  }

  /**
   * A page of the canvas's operations, the latest first.
   * @param {FilterOf<"/v1/canvases/{canvas}/operations"> & CallOptions} [options]
   */
  operations({ signal, ...query } = {}) {
    return this.request("GET", "/v1/canvases/{canvas}/operations", { signal, query });
  }

  /**
   * All operations of the canvas, page by page.
   * @param {FilterOf<"/v1/canvases/{canvas}/operations"> & CallOptions} [options]
   */
  eachOperation(options = {}) {
    return each((cursor) => this.operations({ limit: PAGE, ...options, cursor }), options.cursor);
  }

  /**
   * Cancels an operation. What it has done stays, and the answer says how much that is.
   * @param {string} id
   * @param {CallOptions} [options]
   */
  cancelOperation(id, options) {
    const sent = { ...options, path: { operation: id } };
    return this.request("DELETE", "/v1/canvases/{canvas}/operations/{operation}", sent);
  }

  /**
   * Sets a limit of the canvas: of all its events (`canvas`), of a handler (`handler:MODULE/NAME`),
   * of a key that emits name, or of a family of keys. Repeated, it replaces the limit.
   * @param {string} name
   * @param {Schemas["PutLimit"]} limit
   * @param {CallOptions} [options]
   */
  setLimit(name, limit, options) {
    const sent = { repeatable: true, ...options, path: { limit: name }, body: limit };
    return this.request("PUT", "/v1/canvases/{canvas}/limits/{limit}", sent);
  }

  /**
   * A limit that counts on the canvas, which may be the operator's default.
   * @param {string} name
   * @param {CallOptions} [options]
   */
  limit(name, options) {
    return this.request("GET", "/v1/canvases/{canvas}/limits/{limit}", { ...options, path: { limit: name } });
  }

  /**
   * A page of the limits, by name.
   * @param {FilterOf<"/v1/canvases/{canvas}/limits"> & CallOptions} [options]
   */
  limits({ signal, ...query } = {}) {
    return this.request("GET", "/v1/canvases/{canvas}/limits", { signal, query });
  }

  /**
   * All limits, page by page.
   * @param {FilterOf<"/v1/canvases/{canvas}/limits"> & CallOptions} [options]
   */
  eachLimit(options = {}) {
    return each((cursor) => this.limits({ limit: PAGE, ...options, cursor }), options.cursor);
  }

  /**
   * A page of what is in use of a limit, of a family for each of its keys.
   * @param {string} name
   * @param {FilterOf<"/v1/canvases/{canvas}/limits/{limit}/uses"> & CallOptions} [options]
   */
  limitUses(name, { signal, ...query } = {}) {
    const sent = { signal, path: { limit: name }, query };
    return this.request("GET", "/v1/canvases/{canvas}/limits/{limit}/uses", sent);
  }

  /**
   * All that is in use of a limit, page by page.
   * @param {string} name
   * @param {FilterOf<"/v1/canvases/{canvas}/limits/{limit}/uses"> & CallOptions} [options]
   */
  eachLimitUse(name, options = {}) {
    return each((cursor) => this.limitUses(name, { limit: PAGE, ...options, cursor }), options.cursor);
  }

  /**
   * Removes a limit of the canvas, and wakes what waited for it.
   * @param {string} name
   * @param {CallOptions} [options]
   */
  async removeLimit(name, options) {
    await this.request("DELETE", "/v1/canvases/{canvas}/limits/{limit}", { ...options, path: { limit: name } });
  }

  /**
   * What stops the whole canvas: its pause and its block, and the block of everything.
   * @param {CallOptions} [options]
   */
  async switches(options) {
    const query = { limit: PAGE };
    return (await this.request("GET", "/v1/canvases/{canvas}/switches", { ...options, query })).items;
  }
}

/**
 * A filter as a query, in which several tags or states are one parameter.
 * @param {Record<string, unknown>} filter
 * @returns {any}
 */
function joined(filter) {
  const given = Object.entries(filter).filter(([, value]) => !(Array.isArray(value) && value.length === 0));
  return Object.fromEntries(given.map(([name, value]) => [name, Array.isArray(value) ? value.join() : value]));
}
