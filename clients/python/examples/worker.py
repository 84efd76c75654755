"""Works off the events of a handler: `WAKEQ_SERVER=https://queue.example WAKEQ_KEY=wakeq_… python
examples/worker.py`. The key needs `operate`, `read` and `values` for WORKER/send-email."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from wakeq import Client, Context, DeadError, Worker

if TYPE_CHECKING:
    from wakeq.schema import LeasedEvent


def send_email(event: LeasedEvent, context: Context) -> None:
    to = (event["value"] or {}).get("to")
    if not to:
        raise DeadError("there is nobody to send it to")
    if context.cancelled.is_set():
        raise RuntimeError(context.reason)
    # Send it here, with `event["id"]` as the key that makes a second attempt harmless.
    print(f"sent to {to} (attempt {event['attempt']})", flush=True)


if __name__ == "__main__":
    wakeq = Client(os.environ.get("WAKEQ_SERVER", "http://127.0.0.1:8080"), os.environ.get("WAKEQ_KEY", ""))
    wakeq.pull("send-email", retries=5, delay_s=1, factor=2)
    print("working", flush=True)
    Worker(wakeq).run({"send-email": send_email}, concurrency=20)
