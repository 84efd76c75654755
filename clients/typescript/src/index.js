/**
 * @import * as types from "./types.js"
 * @typedef {types.Schemas} Schemas
 * @typedef {types.ClientOptions} ClientOptions
 * @typedef {types.CallOptions} CallOptions
 * @typedef {types.LeasedEvent} LeasedEvent
 * @typedef {types.WorkerContext} WorkerContext
 * @typedef {types.WorkerHandlers} WorkerHandlers
 * @typedef {types.WorkerOptions} WorkerOptions
 * @typedef {import("./verify.js").Delivery} Delivery
 */

export { Client } from "./client.js";
export { ApiError, TransportError } from "./errors.js";
export { SignatureError, verify } from "./verify.js";
export { DeadError, StopError, Worker } from "./worker.js";
