// Calls of those who run a deployment: blocks, worker processes, programs, queues, and the depth of
// all canvases. Most of them need a key with the scope `admin`, or of every canvas.

import { each, PAGE } from "./pages.js";
import { Scheduling } from "./scheduling.js";

/** @import { CallOptions, FilterOf, OfHandler, Schemas } from "./types.js" */

export class Administering extends Scheduling {
  /**
   * Blocks a handler on this canvas: afterwards no worker claims an event of it, and `unpause` does
   * not lift it. The key needs the scope `admin`.
   * @param {string} name
   * @param {Schemas["StopRequest"] & OfHandler & CallOptions} [options]
   */
  block(name, { module = "WORKER", signal, ...body } = {}) {
    const sent = { signal, repeatable: true, path: { module, name }, body };
    return this.request("PUT", "/v1/admin/canvases/{canvas}/handlers/{module}/{name}/block", sent);
  }

  /**
   * Lifts the block of a handler, and wakes what waited.
   * @param {string} name
   * @param {OfHandler & CallOptions} [options]
   */
  unblock(name, { module = "WORKER", ...options } = {}) {
    const sent = { ...options, path: { module, name } };
    return this.request("DELETE", "/v1/admin/canvases/{canvas}/handlers/{module}/{name}/block", sent);
  }

  /**
   * Blocks the whole canvas, for keys with the scope `admin`: `switches` shows it.
   * @param {Schemas["StopRequest"] & CallOptions} [options]
   */
  blockCanvas({ signal, ...body } = {}) {
    return this.request("PUT", "/v1/admin/canvases/{canvas}/block", { signal, repeatable: true, body });
  }

  /**
   * Lifts the block of the whole canvas, and wakes what waited; handlers that are stopped
   * themselves stay so.
   * @param {CallOptions} [options]
   */
  unblockCanvas(options = {}) {
    return this.request("DELETE", "/v1/admin/canvases/{canvas}/block", options);
  }

  /**
   * Blocks every canvas and every queue, for keys with the scope `admin` on every canvas.
   * @param {Schemas["StopRequest"] & CallOptions} [options]
   */
  blockAll({ signal, ...body } = {}) {
    return this.request("PUT", "/v1/admin/block", { signal, repeatable: true, body });
  }

  /**
   * Lifts the block of everything, and wakes what waited on any canvas.
   * @param {CallOptions} [options]
   */
  unblockAll(options = {}) {
    return this.request("DELETE", "/v1/admin/block", options);
  }

  /**
   * A page of the worker processes of all canvases, by name, for keys of every canvas.
   * @param {FilterOf<"/v1/admin/workers"> & CallOptions} [options]
   */
  workers({ signal, ...query } = {}) {
    return this.request("GET", "/v1/admin/workers", { signal, query });
  }

  /**
   * All worker processes, page by page.
   * @param {FilterOf<"/v1/admin/workers"> & CallOptions} [options]
   */
  eachWorker(options = {}) {
    return each((cursor) => this.workers({ limit: PAGE, ...options, cursor }), options.cursor);
  }

  /**
   * A worker process, with its handlers and what it ran when it was last seen. Of several with the
   * name, the one that was seen last, or this `instance`.
   * @param {string} name
   * @param {{ instance?: string } & CallOptions} [options]
   */
  worker(name, { instance, ...options } = {}) {
    const sent = { ...options, path: { worker: name }, query: { instance } };
    return this.request("GET", "/v1/admin/workers/{worker}", sent);
  }

  /**
   * A page of the programs that lease events of the canvas, by the names that they give.
   * @param {FilterOf<"/v1/canvases/{canvas}/programs"> & CallOptions} [options]
   */
  programs({ signal, ...query } = {}) {
    return this.request("GET", "/v1/canvases/{canvas}/programs", { signal, query });
  }

  /**
   * All programs that lease events of the canvas, page by page.
   * @param {FilterOf<"/v1/canvases/{canvas}/programs"> & CallOptions} [options]
   */
  eachProgram(options = {}) {
    return each((cursor) => this.programs({ limit: PAGE, ...options, cursor }), options.cursor);
  }

  /**
   * A page of the registered queues, by name, for keys of every canvas.
   * @param {FilterOf<"/v1/admin/queues"> & CallOptions} [options]
   */
  queues({ signal, ...query } = {}) {
    return this.request("GET", "/v1/admin/queues", { signal, query });
  }

  /**
   * All registered queues, page by page.
   * @param {FilterOf<"/v1/admin/queues"> & CallOptions} [options]
   */
  eachQueue(options = {}) {
    return each((cursor) => this.queues({ limit: PAGE, ...options, cursor }), options.cursor);
  }

  /**
   * How many copies of a queue are due and free to run, up to 10,000, for keys of every canvas.
   * @param {string} name
   * @param {CallOptions} [options]
   */
  queueDepth(name, options) {
    return this.request("GET", "/v1/admin/queues/{queue}/depth", { ...options, path: { queue: name } });
  }

  /**
   * How many events of all canvases, or of the handlers with a `name`, are due and free to run, for
   * keys of every canvas: about 20,000 are counted.
   * @param {FilterOf<"/v1/admin/depth"> & CallOptions} [filter]
   */
  totalDepth({ signal, ...query } = {}) {
    return this.request("GET", "/v1/admin/depth", { signal, query });
  }
}
