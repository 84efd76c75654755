// pg-boss with its notifications, and large batches for a backlog.
import { setTimeout as sleep } from "node:timers/promises";
import { PgBoss } from "pg-boss";

const QUEUE = "bench";
// It completes jobs after their handler has returned.
const COMPLETED_MS = 300;

export const connect = async (connectionString, _pool, started) => {
  const boss = new PgBoss({ connectionString, max: 32, useListenNotify: true });
  boss.on("error", (error) => console.error(error.message));
  await boss.start();
  await boss.createQueue(QUEUE, { notify: true });
  return {
    emit: (job) => boss.send(QUEUE, job),
    emitAll: (jobs) => boss.insert(QUEUE, jobs.map((data) => ({ data }))),
    start: async (mode) => {
      const [batchSize, localConcurrency] = { backlog: [1000, 2], live: [50, 8], idle: [50, 1] }[mode];
      const settings = { batchSize, localConcurrency, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 };
      await boss.work(QUEUE, settings, async (jobs) => jobs.forEach((job) => started(job.data)));
      return async () => {
        await sleep(COMPLETED_MS);
        await boss.offWork(QUEUE);
      };
    },
  };
};
