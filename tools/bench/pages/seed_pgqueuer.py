"""The shop on pgqueuer: `seed_pgqueuer.py 1|2|3|work`, with the jobs in jobs.jsonl and the database in PGDSN."""

import asyncio
import json
import os
import sys
from datetime import timedelta

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Context, Job, Schedule
from pgqueuer.types import QueueExecutionMode

JOBS = [json.loads(line) for line in open("jobs.jsonl")]
ERRORS = {(job["handler"], job["value"].get("order")): job["error"] for job in JOBS}


async def quick(job: Job):
    error = ERRORS.get((job.entrypoint, json.loads(job.payload).get("order")))
    if error:
        raise RuntimeError(error)


async def long(job: Job, context: Context):
    with context.cancellation:
        await asyncio.sleep(json.loads(job.payload)["ms"] / 1000)


async def tick(schedule: Schedule):
    await asyncio.sleep(0.1)


def handlers(connection, is_last):
    queue = PgQueuer(AsyncpgDriver(connection))
    for name in ("send-mail", "charge-card", "book-stock"):
        queue.entrypoint(name, on_failure="hold")(quick)
    # It knows no limit for each customer.
    queue.entrypoint("resize-image", concurrency_limit=4 if is_last else 0, on_failure="hold")(long)
    if is_last:
        queue.entrypoint("import-catalogue", concurrency_limit=20, on_failure="hold")(long)
        queue.schedule("nightly-report", "0 1 * * *")(tick)
        queue.schedule("exchange-rates", "* * * * *")(tick)
    return queue


async def main(phase):
    connection = await asyncpg.connect(os.environ["PGDSN"])
    queue = handlers(connection, phase == "work")
    if phase == "work":
        return await queue.run(max_concurrent_tasks=40)
    mine = [job for job in JOBS if str(job["phase"]) == phase]
    for at in range(0, len(mine), 500):
        part = mine[at:at + 500]
        delays = [timedelta(seconds=job["value"].get("delay_s", 0)) for job in part]
        values = [json.dumps(job["value"]).encode() for job in part]
        await queue.qm.queries.enqueue([job["handler"] for job in part], values, [0] * len(part), delays)
    if phase != "3":
        await queue.qm.run(mode=QueueExecutionMode.drain, batch_size=50, max_concurrent_tasks=100)


asyncio.run(main(sys.argv[1]))
