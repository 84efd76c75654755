// graphile-worker with the settings that its own page on performance has.
import { Logger, makeWorkerUtils, run } from "graphile-worker";

const SETTINGS = {
  concurrentJobs: 24,
  maxPoolSize: 25,
  localQueue: { size: 500 },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
};

export const connect = async (connectionString, pgPool, started) => {
  const logger = new Logger(() => () => {});
  const utils = await makeWorkerUtils({ pgPool, logger });
  await utils.migrate();
  return {
    unfinished: "select exists (select from graphile_worker._private_jobs)",
    emit: (job) => utils.addJob("bench", job),
    emitAll: (jobs) => utils.addJobs(jobs.map((payload) => ({ identifier: "bench", payload }))),
    start: async () => {
      const preset = { worker: { connectionString, logger, ...SETTINGS } };
      const runner = await run({ preset, noHandleSignals: false, taskList: { bench: async (job) => started(job) } });
      return () => runner.stop();
    },
  };
};
