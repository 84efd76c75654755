"""Emits events with the official CloudEvents SDK for Python, in every mode that it has, and prints the answers.

Run by `cargo xtask sdk`, with the address of the service, a canvas and a key in the environment. Nothing here builds a
header or a body by hand: what is sent is what the SDK made.
"""

import json
import os
from datetime import datetime, timezone
from http.client import HTTPConnection

from cloudevents.core.bindings import http
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

SUBJECT = 'Euro € 😀 "100%"'
SOURCE = "https://shop.example/orders?region=eu"
TIME = datetime(2026, 1, 31, 8, 0, 0, 250000, tzinfo=timezone.utc)


def event(id, data=None, **attributes):
    common = {"id": id, "source": SOURCE, "type": "greet", "specversion": "1.0"}
    return CloudEvent(attributes={**common, **attributes}, data=data)


def post(message, query="", path="events"):
    """Sends what the SDK made, and no header that it did not make but the key."""
    connection = HTTPConnection(os.environ["WAKEQ_ADDRESS"], timeout=30)
    headers = {**message.headers, "authorization": f"Bearer {os.environ['WAKEQ_KEY']}"}
    connection.request("POST", f"/v1/canvases/{os.environ['WAKEQ_CANVAS']}/{path}{query}", message.body, headers)
    answer = connection.getresponse()
    body = json.load(answer)
    connection.close()
    return answer.status, body


def report(name, answer):
    status, body = answer
    print(json.dumps({"case": name, "status": status, "body": body}), flush=True)


def main():
    text = "text/plain; charset=utf-8"
    data = {"name": "Ada", "é": [1, 2.5, None]}
    greeting = event("1", data, datacontenttype="application/json", subject=SUBJECT, time=TIME, modifier="eu")
    report("structured", post(http.to_structured_event(greeting)))
    report("structured again", post(http.to_structured_event(greeting)))
    report("the same in binary", post(http.to_binary_event(greeting)))
    for name, sent in {
        "json": event("2", {"name": "Bo"}, time=TIME, subject=SUBJECT),
        "text": event("3", "héllo", datacontenttype=text),
        "bytes": event("4", b'{"a": 1}', datacontenttype="application/json"),
        "nothing": event("5"),
        "delayed": event("6", {}, delayuntil="2096-01-31T08:00:00Z"),
    }.items():
        report(f"binary {name}", post(http.to_binary_event(sent)))
        report(f"structured {name}", post(http.to_structured_event(sent)))
    image = event("7", b"\x00\xff", datacontenttype="image/png", subject=SUBJECT, time=TIME)
    report("image", post(http.to_binary_event(image)))
    report("enveloped image", post(http.to_binary_event(image), "?value=envelope"))

    # The SDK writes no batches; one in JSON format is an array of what it does write.
    bodies = [JSONFormat().write(event(id, {"number": id})).decode() for id in ("8", "9", "1")]
    batch = http.HTTPMessage({"content-type": "application/cloudevents-batch+json"}, f"[{','.join(bodies)}]".encode())
    report("batch", post(batch, path="events:batch"))


if __name__ == "__main__":
    main()
