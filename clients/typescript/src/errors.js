// What can go wrong between the client and the service. Invalid arguments are a TypeError instead.

/** @import { Schemas } from "./types.js" */

/** The statuses of "later", the service's own or a proxy's. */
const TEMPORARY = [429, 502, 503, 504];
const TYPE_PREFIX = "urn:wakeq:problem:";

/** The service answered, and refused the request. */
export class ApiError extends Error {
  name = "ApiError";

  /**
   * @param {string} request method and path
   * @param {number} status
   * @param {Schemas["Problem"] | undefined} problem absent if the answer is not in wakeq's format
   * @param {{ retryAfterS?: number | undefined, requestId?: string | undefined }} [headers]
   */
  constructor(request, status, problem, headers = {}) {
    const words = problem
      ? `${problem.title}: ${problem.detail} (${status}, request ${problem.request_id})`
      : `${status}, not in wakeq's format: is this its URL, and what is in front of it?`;
    super(`${request}: ${words}`);
    /** The HTTP status. */
    this.status = status;
    /** The problem's type, which is stable: `urn:wakeq:problem:not-found`. */
    this.type = problem?.type ?? "about:blank";
    /** The last part of the type: `not-found`. Undefined if the answer is not wakeq's. */
    this.code = this.type.startsWith(TYPE_PREFIX) ? this.type.slice(TYPE_PREFIX.length) : undefined;
    this.title = problem?.title;
    /** What is wrong in this case, and what to do. */
    this.detail = problem?.detail;
    /** Names the request in the service's log. */
    this.requestId = problem?.request_id ?? headers.requestId;
    /** Seconds after which to try again, if the service says so. */
    this.retryAfterS = headers.retryAfterS;
  }

  /** Whether the same request may succeed later. */
  get isTemporary() {
    return TEMPORARY.includes(this.status) || this.code === "idempotency-in-progress";
  }
}

/** There was no answer, or not all of it. The request may have taken effect. */
export class TransportError extends Error {
  name = "TransportError";

  /**
   * @param {string} message
   * @param {boolean} isTemporary
   * @param {unknown} [cause]
   */
  constructor(message, isTemporary, cause) {
    super(message, { cause });
    /** Whether the same request may succeed later. */
    this.isTemporary = isTemporary;
  }
}
