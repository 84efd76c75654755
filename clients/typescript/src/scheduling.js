// Calls about crons, each of which emits an event for the handler `CRON/name` at its times.

import { each, PAGE } from "./pages.js";
import { once, Requests } from "./requests.js";

/** @import { CallOptions, FilterOf, Schemas } from "./types.js" */

export class Scheduling extends Requests {
  /**
   * Creates a cron, or replaces the one of that name. One that is paused stays paused.
   * @param {string} name
   * @param {Schemas["PutCron"]} cron
   * @param {CallOptions} [options]
   */
  setCron(name, cron, options) {
    const sent = { repeatable: true, ...options, path: { cron: name }, body: cron };
    return this.request("PUT", "/v1/canvases/{canvas}/cron/{cron}", sent);
  }

  /**
   * A cron, with its next five ticks and what became of its last one.
   * @param {string} name
   * @param {CallOptions} [options]
   */
  cron(name, options) {
    return this.request("GET", "/v1/canvases/{canvas}/cron/{cron}", { ...options, path: { cron: name } });
  }

  /**
   * A page of the crons, by name and without their values.
   * @param {FilterOf<"/v1/canvases/{canvas}/cron"> & CallOptions} [options]
   */
  crons({ signal, ...query } = {}) {
    return this.request("GET", "/v1/canvases/{canvas}/cron", { signal, query });
  }

  /**
   * All crons, page by page.
   * @param {FilterOf<"/v1/canvases/{canvas}/cron"> & CallOptions} [options]
   */
  eachCron(options = {}) {
    return each((cursor) => this.crons({ limit: PAGE, ...options, cursor }), options.cursor);
  }

  /**
   * Emits an event of a cron now; its ticks stay as they are. Attempts after a lost answer emit
   * nothing twice.
   * @param {string} name
   * @param {CallOptions} [options]
   */
  runCron(name, options) {
    const sent = { ...once(options), path: { cron: name } };
    return this.request("POST", "/v1/canvases/{canvas}/cron/{cron}/run-now", sent);
  }

  /**
   * Pauses a cron. Ticks that pass meanwhile are not made up for.
   * @param {string} name
   * @param {Schemas["PauseCron"] & CallOptions} [options]
   */
  pauseCron(name, { signal, ...body } = {}) {
    const sent = { signal, repeatable: true, path: { cron: name }, body };
    return this.request("PUT", "/v1/canvases/{canvas}/cron/{cron}/pause", sent);
  }

  /**
   * Resumes a cron, with its next tick.
   * @param {string} name
   * @param {CallOptions} [options]
   */
  unpauseCron(name, options) {
    return this.request("DELETE", "/v1/canvases/{canvas}/cron/{cron}/pause", { ...options, path: { cron: name } });
  }

  /**
   * Deletes a cron. Events that are due stay.
   * @param {string} name
   * @param {CallOptions} [options]
   */
  async removeCron(name, options) {
    await this.request("DELETE", "/v1/canvases/{canvas}/cron/{cron}", { ...options, path: { cron: name } });
  }
}
