// The types of `Client.request`, derived from the document's. Types only: nothing here is run.

import type { components, paths } from "./schema.js";

/** The bodies of requests and answers, by their names in the OpenAPI document. */
export type Schemas = components["schemas"];

export type Method = "GET" | "PUT" | "POST" | "DELETE";

/** The paths that have a method, without `/v1/listen`, whose answer does not end. */
export type PathOf<M extends Method> = {
  [P in keyof paths]: paths[P] extends Record<Lowercase<M>, { responses: unknown }> ? P : never;
}[Exclude<keyof paths, "/v1/listen">];

type Operation<M extends Method, P extends PathOf<M>> = paths[P] extends Record<Lowercase<M>, infer O> ? O : never;

type Success<R> = {
  [S in keyof R]: S extends 200 | 201 | 202
    ? R[S] extends { content: { "application/json": infer A } } ? A : undefined
    : S extends 204 ? undefined : never;
}[keyof R];

/** What a request answers. */
export type Answer<M extends Method, P extends PathOf<M>> =
  Operation<M, P> extends { responses: infer R } ? Success<R> : never;

type Body<O> = O extends { requestBody: { content: { "application/json": infer B } } }
  ? { body: B }
  : O extends { requestBody?: { content: { "application/json": infer B } } } ? { body?: B } : { body?: undefined };

type Query<O> = O extends { parameters: { query?: infer Q } }
  ? [NonNullable<Q>] extends [never] ? { query?: undefined } : { query?: NonNullable<Q> }
  : { query?: undefined };

type QueryOf<P extends PathOf<"GET">> =
  Operation<"GET", P> extends { parameters: { query?: infer Q } } ? NonNullable<Q> : never;

type WithLists<Q> = { [N in keyof Q]: N extends "state" | "tag" ? Q[N] | string[] : Q[N] };

/** What a list or a count is of. An event has all of several tags, and one of several states. */
export type FilterOf<P extends PathOf<"GET">> = WithLists<QueryOf<P>>;

type Path<O> = O extends { parameters: { path: infer V } }
  ? Exclude<keyof V, "canvas"> extends never
    ? { path?: { canvas?: string } }
    : { path: Omit<V, "canvas"> & { canvas?: string } }
  : { path?: { canvas?: string } };

/** What applies to every request. */
export interface CallOptions {
  /** Ends the request, and the pauses between its attempts. */
  signal?: AbortSignal | undefined;
  /**
   * For emits: repeats with the same key within 24 hours answer what the first one did. Emits
   * choose one themselves, for their own attempts.
   */
  idempotencyKey?: string | undefined;
  /** Whether a request whose answer was lost may be sent again. Default: a GET, or with a key. */
  repeatable?: boolean | undefined;
}

export type RequestOptions<M extends Method, P extends PathOf<M>> = CallOptions &
  Body<Operation<M, P>> & Query<Operation<M, P>> & Path<Operation<M, P>>;

/** The last argument of `Client.request`: left out where nothing in it is required. */
export type Rest<M extends Method, P extends PathOf<M>> =
  {} extends RequestOptions<M, P> ? [options?: RequestOptions<M, P>] : [options: RequestOptions<M, P>];

export interface ClientOptions {
  /** Of the service: `https://queue.example`. Below a path of it, if a proxy puts it there. */
  url: string | URL;
  /** A key (`wakeq_…`), or a function that returns one or a Google ID token, asked each time. */
  key: string | (() => string | Promise<string>);
  /** The tenant. Default: the nil UUID, of deployments with one tenant. */
  canvas?: string | undefined;
  /** For each attempt. Default 35,000: the service itself ends requests after 30 s. */
  timeoutMs?: number | undefined;
  /** How often a request is sent again, if that is safe. Default 2. */
  retries?: number | undefined;
  /** Default: the global one. */
  fetch?: typeof globalThis.fetch | undefined;
}

/** A handler, besides its name. */
export interface OfHandler {
  /** Default `WORKER`. */
  module?: string | undefined;
}

/** An event that a worker has leased. */
export type LeasedEvent = Schemas["LeasedEvent"];

/** What a function knows besides its event. */
export interface WorkerContext {
  /**
   * Aborted with a `StopError` when the function has to stop: its lease is lost, its event was
   * cancelled, or the worker's grace is over.
   */
  readonly signal: AbortSignal;
  /** When the lease ends. It is extended by itself, so this moves. */
  readonly leaseUntil: Date;
}

/** Functions by `name`, or by `MODULE/name`. */
export type WorkerHandlers = Record<string, (event: LeasedEvent, context: WorkerContext) => unknown>;

export interface WorkerOptions {
  /**
   * Shown with the events that it has leased, in their history, and among the programs: 1 to 128 of
   * `A-Z a-z 0-9 _ . -`. Default: the host's name and the number of the process.
   */
  name?: string | undefined;
  /** How many events run at once. Default 10. */
  concurrency?: number | undefined;
  /** The length of a lease, 1 to 3,600. It is extended each third of it. Default 60. */
  leaseS?: number | undefined;
  /** How long functions may go on when the worker stops. Default 25. */
  graceS?: number | undefined;
  /** What stops the worker. Default SIGTERM and SIGINT; `[]` for none. */
  signals?: NodeJS.Signals[] | undefined;
  /** Stops the worker when it is aborted. */
  signal?: AbortSignal | undefined;
  /** Told of each request that fails. Default: `console.error`. */
  onError?: ((error: unknown) => void) | undefined;
}
