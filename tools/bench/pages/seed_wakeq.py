"""The shop on wakeq: `seed_wakeq.py setup|1|2|3|targets|pull`, with the jobs in jobs.jsonl.

The API is at WAKEQ_SERVER with WAKEQ_KEY, and MIA_KEY is another person's. What is quick is pulled by
`pull`, so that its errors have words, and what lasts long are the HTTP targets of `targets`.
"""

import http.server
import json
import os
import select
import sys
import time
import urllib.request

from wakeq import Client, DeadError, Worker

JOBS = [json.loads(line) for line in open("jobs.jsonl")]
KNOWN = {(job["handler"], job["value"].get("order")): job for job in JOBS}
QUICK = ("send-mail", "charge-card", "book-stock")
TARGETS = (("WORKER", "resize-image"), ("WORKER", "import-catalogue"), ("CRON", "nightly-report"),
           ("CRON", "exchange-rates"))
PORT = 55941
WEEK_S = 604_800


def request(method, path, body=None, key=None):
    url = f"{os.environ['WAKEQ_SERVER']}/v1/canvases/00000000-0000-0000-0000-000000000000{path}"
    headers = {"authorization": f"Bearer {key or os.environ['WAKEQ_KEY']}", "content-type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, method=method, headers=headers, data=data)
    with urllib.request.urlopen(asked) as answer:
        return json.loads(answer.read() or b"null")


def set_up():
    for name in QUICK:
        request("PUT", f"/handlers/WORKER/{name}/pull", {"retries": 0})
    for module, name in TARGETS:
        policy = {"retries": 50, "keep_s": WEEK_S, "timeout_s": 600}
        request("PUT", f"/handlers/{module}/{name}", {"url": f"http://127.0.0.1:{PORT}/{name}", "policy": policy})
    request("PUT", "/cron/nightly-report", {"expression": "0 2 * * *", "zone": "Europe/Berlin"})
    request("PUT", "/cron/exchange-rates", {"expression": "* * * * *", "zone": "Asia/Tokyo"})
    request("PUT", "/limits/customer", {"concurrency": 2})


def event(handler, value):
    tags = [f"{name}:{value[name]}" for name in ("order", "customer", "catalogue") if name in value]
    options = {"tags": tags, "keep_s": WEEK_S}
    if handler == "resize-image":
        options["limits"] = [f"customer:{value['customer']}"]
    return {"name": handler, "value": value, "options": options, "delay_s": value.get("delay_s", 0)}


def emit(phase):
    mine = [event(job["handler"], job["value"]) for job in JOBS if str(job["phase"]) == phase]
    for at in range(0, len(mine), 500):
        request("POST", "/events:batch", {"events": mine[at:at + 500]})
    if phase == "3":
        reason = "The texts promise last month's discount, mia corrects them (SHOP-812)"
        return request("PUT", "/handlers/WORKER/remind-cart/pause", {"reason": reason}, os.environ["MIA_KEY"])
    while request("GET", "/events/count?state=ready,running")["count"]:
        time.sleep(1)


def pulled(handler):
    def run(leased, context):
        job = KNOWN.get((handler, leased["value"].get("order")), {"error": None, "result": None})
        if job["error"]:
            raise DeadError(job["error"])
        return job["result"]
    return run


class Target(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        value = json.loads(self.rfile.read(int(self.headers["content-length"])))
        until = time.monotonic() + (value or {}).get("ms", 0) / 1000
        while time.monotonic() < until:
            if select.select([self.connection], [], [], 1)[0]:
                return  # It was cancelled, and so the connection was closed.
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(b"{}")


phase = sys.argv[1]
if phase == "setup":
    set_up()
elif phase == "pull":
    client = Client(os.environ["WAKEQ_SERVER"], os.environ["WAKEQ_KEY"])
    Worker(client).run({name: pulled(name) for name in QUICK}, concurrency=20)
elif phase == "targets":
    http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Target).serve_forever()
else:
    emit(phase)
