// Peers in JavaScript for `cargo xtask bench --peers`: graphile-worker and pg-boss.
//
// The argument names one. It sets its tables up in the database of DATABASE_URL, reports the
// size of its payloads, and answers each line of its input with a line of JSON.
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";

const CALLERS = 32;
const CALL = 1000;
const WARMING = 200;
const SETTLING_MS = 1500;
const PATIENCE_MS = 120_000;
const LOOK_MS = 5;
const PADDING = "eighty bytes of an ordinary payload, such as a few ids, a name and an address...";

const url = process.env.DATABASE_URL;
const latencies = [];
let started = 0;

// Called as a job starts. If its intended start is 0, its latency is not measured.
const start = (job) => {
  started += 1;
  const due = Number(job.number) / 1000;
  if (due > 0) latencies.push(performance.now() - due);
};
// With the fields that the payload of every other queue has. The number is the intended start in
// microseconds.
const job = (due = 0) => ({ number: String(Math.round(due * 1000)).padStart(20, "0"), padding: PADDING });
const secs = (since) => (performance.now() - since) / 1000;

// Waits until so many jobs have started, and then until none is left: the tables are asked only at
// the end, so that it costs nearly nothing.
const until = async (peer, count) => {
  const deadline = performance.now() + PATIENCE_MS;
  while (started < count) {
    if (performance.now() > deadline) throw new Error(`${started} of ${count} jobs have started`);
    await sleep(LOOK_MS);
  }
  while ((await pool.query(peer.unfinished)).rows[0].exists) {
    if (performance.now() > deadline) throw new Error(`not all of ${count} jobs have completed`);
    await sleep(LOOK_MS);
  }
};

const single = async (peer, count) => {
  const since = performance.now();
  let next = 0;
  const caller = async () => {
    while (next++ < count) await peer.emit(job());
  };
  await Promise.all(Array.from({ length: CALLERS }, caller));
  return { secs: secs(since) };
};

const bulk = async (peer, count) => {
  const since = performance.now();
  for (let from = 0; from < count; from += CALL) {
    await peer.emitAll(Array.from({ length: Math.min(CALL, count - from) }, () => job()));
  }
  return { secs: secs(since) };
};

const drain = async (peer, count) => {
  const since = performance.now();
  const before = started;
  const stop = await peer.start("backlog");
  await until(peer, before + count);
  const reply = { secs: secs(since) };
  await stop();
  return reply;
};

const work = async (peer) => {
  const since = performance.now();
  await peer.start("live");
  await sleep(SETTLING_MS);
  const before = started;
  for (let number = 0; number < WARMING; number += 1) await peer.emit(job());
  await until(peer, before + WARMING);
  return { secs: secs(since) };
};

// Each job counts from its intended start, and never waits for the one before.
const rate = async (peer, perSecond, length) => {
  const since = performance.now();
  const count = perSecond * length;
  const before = started;
  const emits = [];
  while (emits.length < count) {
    const due = Math.min(count, Math.floor((performance.now() - since) * perSecond / 1000) + 1);
    while (emits.length < due) emits.push(peer.emit(job(since + emits.length * 1000 / perSecond)));
    await sleep(1);
  }
  await Promise.all(emits);
  await until(peer, before + count);
  latencies.sort((a, b) => a - b);
  const at = (quantile) => latencies[Math.min(latencies.length - 1, Math.floor(latencies.length * quantile))];
  return { secs: secs(since), p50_ms: at(0.5), p99_ms: at(0.99), max_ms: at(1) };
};

const name = process.argv[2].replace(/-[0-9.]+$/, "");
const pool = new pg.Pool({ connectionString: url, max: CALLERS });
pool.on("error", () => {});
pool.on("connect", (client) => client.on("error", () => {}));
const { connect } = await import(`./${name}.mjs`);
const peer = await connect(url, pool, start);
const say = (reply) => console.log(JSON.stringify(reply));
say({ payload_bytes: Buffer.byteLength(JSON.stringify(job())) });
for await (const line of createInterface({ input: process.stdin })) {
  const [verb, first, second] = line.split(" ");
  const verbs = {
    single: () => single(peer, +first),
    bulk: () => bulk(peer, +first),
    drain: () => drain(peer, +first),
    start: () => work(peer),
    rate: () => rate(peer, +first, +second),
  };
  say(await verbs[verb]());
}
process.exit();
