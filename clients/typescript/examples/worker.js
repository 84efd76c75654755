// Works off the events of a handler: `WAKEQ_SERVER=https://queue.example WAKEQ_KEY=wakeq_… node
// examples/worker.js`. The key needs `operate`, `read` and `values` for WORKER/send-email.

import { Client, DeadError, Worker } from "wakeq";

const { WAKEQ_SERVER: url = "http://127.0.0.1:8080", WAKEQ_KEY: key = "" } = process.env;
const wakeq = new Client({ url, key });

await wakeq.pull("send-email", { retries: 5, delay_s: 1, factor: 2 });
console.log("working");
await new Worker(wakeq).run({
  "send-email": async (event, { signal }) => {
    const { to } = /** @type {{ to?: string }} */ (event.value ?? {});
    if (!to) throw new DeadError("there is nobody to send it to");
    if (signal.aborted) throw signal.reason;
    // Send it here, with `event.id` as the key that makes a second attempt harmless.
    console.log(`sent to ${to} (attempt ${event.attempt})`);
  },
}, { concurrency: 20 });
