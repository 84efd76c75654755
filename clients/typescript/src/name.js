// The name under which a worker leases events. The service shows it with them.

import { hostname } from "node:os";

const NAME = /^[A-Za-z0-9_.-]{1,128}$/;
/** How much of the host's name is kept: the end, where the names of pods differ. */
const HOST_MAX = 100;

/**
 * The given name, or else the host's and the number of the process, such as `mailer-x7k2p-31`.
 * @param {string} [given]
 */
export function workerName(given) {
  if (given !== undefined && !NAME.test(given)) {
    throw new TypeError("name has 1 to 128 of A-Z a-z 0-9 _ . -");
  }
  const host = hostname().replace(/[^A-Za-z0-9_.-]/g, "-").slice(-HOST_MAX) || "worker";
  return given ?? `${host}-${process.pid}`;
}
