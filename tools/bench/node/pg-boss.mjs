// pg-boss with its notifications, and large batches for a backlog.
import { PgBoss } from "pg-boss";

const QUEUE = "bench";

export const connect = async (connectionString, _pool, started) => {
  const boss = new PgBoss({ connectionString, max: 32, useListenNotify: true });
  boss.on("error", (error) => console.error(error.message));
  await boss.start();
  await boss.createQueue(QUEUE, { notify: true });
  return {
    unfinished: `select exists (select from pgboss.job
      where name = '${QUEUE}' and state in ('created', 'retry', 'active', 'failed'))`,
    emit: (job) => boss.send(QUEUE, job),
    emitAll: (jobs) => boss.insert(QUEUE, jobs.map((data) => ({ data }))),
    start: async (mode) => {
      const [batchSize, localConcurrency] = { backlog: [1000, 2], live: [50, 8] }[mode];
      const settings = { batchSize, localConcurrency, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 };
      await boss.work(QUEUE, settings, async (jobs) => jobs.forEach((job) => started(job.data)));
      return () => boss.offWork(QUEUE);
    },
  };
};
