// The shop on pg-boss: `node boss.mjs setup|1|2|3|work`, with the jobs in jobs.jsonl and the database
// in DATABASE_URL.
import { readFileSync } from "node:fs";
import { PgBoss } from "pg-boss";

const jobs = readFileSync("jobs.jsonl", "utf8").trim().split("\n").map((line) => JSON.parse(line));
const key = (handler, value) => `${handler} ${value?.order}`;
const known = new Map(jobs.map((job) => [key(job.handler, job.value), job]));
const phase = process.argv[2];

const boss = new PgBoss({
  connectionString: process.env.DATABASE_URL, persistQueueStats: true, monitorIntervalSeconds: 15,
  superviseIntervalSeconds: 15,
});
boss.on("error", (error) => console.error(String(error)));
await boss.start();

const setUp = async () => {
  const names = [...new Set(jobs.map((job) => job.handler)), "nightly-report", "exchange-rates"];
  const options = { retryLimit: 0, expireInSeconds: 86_000, deleteAfterSeconds: 0 };
  for (const name of names) await boss.createQueue(name, options);
  await boss.schedule("nightly-report", "0 2 * * *", {}, { tz: "Europe/Berlin" });
  await boss.schedule("exchange-rates", "* * * * *", {}, { tz: "Asia/Tokyo" });
  await boss.send("nightly-report", {}); // The tick of last night.
};

const send = async () => {
  const mine = jobs.filter((job) => String(job.phase) === phase);
  for (const [name, all] of Map.groupBy(mine, (job) => job.handler)) {
    const rows = all.map(({ value }) => ({
      data: value,
      ...(name === "resize-image" && { group: { id: value.customer } }),
      ...(value.delay_s && { startAfter: value.delay_s }),
    }));
    for (let at = 0; at < rows.length; at += 500) await boss.insert(name, rows.slice(at, at + 500));
  }
};

const quick = { batchSize: 100, pollingIntervalSeconds: 0.5, burstWhenBatchFull: true, perJobResults: true };
const end = ({ id, name, data }) => {
  const { error, result } = known.get(key(name, data)) ?? {};
  if (error) return { id, status: "failed", output: { message: error } };
  return { id, status: "completed", output: result ?? {} };
};
const last = ({ data, signal }) => new Promise((done, failed) => {
  const timer = setTimeout(done, data.ms);
  signal.addEventListener("abort", () => (clearTimeout(timer), failed(new Error("cancelled"))));
});
const work = async (names) => {
  for (const name of names) await boss.work(name, quick, async (batch) => batch.map(end));
};
const left = "select 1 from pgboss.job where state < 'completed' and name in ('send-mail', 'nightly-report', "
  + "'charge-card', 'book-stock', 'resize-image') limit 1";

if (phase === "setup") await setUp();
if (["1", "2", "3"].includes(phase)) await send();
if (phase !== "setup" && phase !== "3") await work(["send-mail", "charge-card", "book-stock", "nightly-report"]);
if (["1", "2"].includes(phase)) {
  await work(["resize-image"]);
  while ((await boss.getDb().executeSql(left)).rows.length) await new Promise((done) => setTimeout(done, 500));
}
if (phase === "work") {
  await work(["exchange-rates"]);
  await boss.work("resize-image", { localConcurrency: 4, groupConcurrency: 2 }, async ([job]) => last(job));
  await boss.work("import-catalogue", { localConcurrency: 20 }, async ([job]) => last(job));
} else {
  await boss.stop({ graceful: false });
  process.exit();
}
