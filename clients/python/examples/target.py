"""An HTTP target: takes signed events from wakeq, and prints each once.

    WEBHOOK_SECRET=whsec_… PORT=8000 python examples/target.py
"""

import http.server
import json
import os

from wakeq import SignatureError, verify

SECRETS = os.environ["WEBHOOK_SECRET"].split(" ")  # During a rotation both, separated by a blank.
BODY_BYTES_MAX = 16 * 2**20
done: set[str] = set()  # Yours is in your database, written with the effect.


class Receiver(http.server.BaseHTTPRequestHandler):
    timeout = 60

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", 0))
        if length > BODY_BYTES_MAX:
            return self.send_error(413)
        try:
            delivery = verify(self.headers, self.rfile.read(length), SECRETS)
        except SignatureError:
            return self.send_error(401)
        if delivery.id not in done:
            done.add(delivery.id)
            print(delivery.name, json.dumps(delivery.value), flush=True)
        self.send_response(204)
        self.end_headers()


address = os.environ.get("HOST", "127.0.0.1"), int(os.environ.get("PORT", 0))
server = http.server.ThreadingHTTPServer(address, Receiver)
print("listening on", server.server_port, flush=True)
server.serve_forever()
