"""Signatures: the vector that Standard Webhooks publishes, and all that has to be refused."""

from __future__ import annotations

import email.message
import unittest
from typing import Any

from wakeq import Delivery, SignatureError, verify

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
FORMER_SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
BODY = b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
FORMER_SIGNATURE = "v1,78nXHjpFP0tVJQW5D0SBwmVyyW87BV/rL6MgfM/Bw44="
TIME_S = 1614265330
HEADERS = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": str(TIME_S),
    "webhook-signature": SIGNATURE,
}
OF_WAKEQ = {"ce-type": "WORKER/greet/_", "ce-source": "/canvases/7", "wakeq-attempt": "2"}


def accepted(
    more: dict[str, str] = {}, secrets: Any = SECRET, body: Any = BODY, now_s: float = TIME_S
) -> Delivery:
    return verify({**HEADERS, **more}, body, secrets, now_s)


class Verify(unittest.TestCase):
    def refused(self, words: str, *args: Any, **more: Any) -> None:
        with self.assertRaisesRegex(SignatureError, words):
            accepted(*args, **more)

    def test_a_delivery_is_verified_and_described(self) -> None:
        expected = Delivery(
            HEADERS["webhook-id"], TIME_S, "WORKER", "greet", "_", "7", 2, {"test": 2432232314}
        )
        self.assertEqual(accepted(OF_WAKEQ), expected)
        self.assertIsNone(accepted().name, "from another sender")
        self.assertIsNone(accepted({"wakeq-attempt": "x"}).attempt)
        upper = {name.upper(): value for name, value in HEADERS.items()}
        self.assertEqual(verify(upper, bytearray(BODY), SECRET, TIME_S).value, {"test": 2432232314})
        message = email.message.Message()
        for name, value in HEADERS.items():
            message[name.title()] = value
        verify(message, memoryview(BODY), SECRET, TIME_S)
        message["webhook-id"] = "msg_other"
        with self.assertRaisesRegex(SignatureError, "no signature matches"):
            verify(message, BODY, SECRET, TIME_S)

    def test_a_rotated_secret_is_accepted_beside_the_new_one(self) -> None:
        accepted({"webhook-signature": f"{FORMER_SIGNATURE} {SIGNATURE}"})
        accepted(secrets=[FORMER_SECRET, SECRET])
        accepted({"webhook-signature": FORMER_SIGNATURE}, (SECRET, FORMER_SECRET))

    def test_what_is_not_from_wakeq_is_refused(self) -> None:
        self.refused("no signature matches", secrets=FORMER_SECRET)
        self.refused("no signature matches", body=b'{"test": 2432232315}')
        self.refused("no signature matches", body=b'{"test":2432232314}')
        self.refused("no signature matches", {"webhook-id": "msg_other"})
        self.refused("no signature matches", {"webhook-timestamp": str(TIME_S + 1)})
        for signature in (SIGNATURE.replace("v1,", "v1a,"), SIGNATURE[:-1], "v1,", ",", "é", "\udcff"):
            self.refused("no signature matches", {"webhook-signature": signature})
        for name in HEADERS:
            self.refused(f"the header {name} is missing", {name: ""})

    def test_an_old_delivery_and_one_from_the_future_is_refused(self) -> None:
        for off_s in (-300, 300):
            accepted(now_s=TIME_S + off_s)
        for off_s in (-301, 301):
            self.refused("five minutes", now_s=TIME_S + off_s)
        for sent_at in ("", " ", "1e9", "nan", "0x10", f"-{TIME_S}", f"{TIME_S}.0", "9" * 20, "١٢٣"):
            self.refused("webhook-timestamp", {"webhook-timestamp": sent_at})
        self.refused("five minutes", now_s=float("nan"))

    def test_mistakes_of_the_receiver_are_named_without_the_secret(self) -> None:
        for secret in ("", "whsec_", SECRET.removeprefix("whsec_"), "whsec_c2hvcnQ=", f"{SECRET}\n", "whsec_é"):
            with self.assertRaisesRegex(ValueError, "^a secret is `whsec_`"):
                accepted(secrets=secret)
        with self.assertRaises(ValueError):
            accepted(secrets=[])
        for body in ({"test": 2432232314}, BODY.decode(), None):
            with self.assertRaisesRegex(TypeError, "bytes as received"):
                accepted(body=body)
