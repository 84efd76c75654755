// Signatures: the vector that Standard Webhooks publishes, and all that has to be refused.

import assert from "node:assert/strict";
import { test } from "node:test";
import { SignatureError, verify } from "wakeq";

const SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const FORMER_SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const BODY = Buffer.from('{"test": 2432232314}');
const SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
const FORMER_SIGNATURE = "v1,78nXHjpFP0tVJQW5D0SBwmVyyW87BV/rL6MgfM/Bw44=";
const TIME_S = 1614265330;
const HEADERS = {
  "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
  "webhook-timestamp": String(TIME_S),
  "webhook-signature": SIGNATURE,
};
const OF_WAKEQ = { "ce-type": "WORKER/greet/_", "ce-source": "/canvases/7", "wakeq-attempt": "2" };

/** @param {number} seconds */
const later = (seconds) => new Date((TIME_S + seconds) * 1000);

/** @param {Record<string, string>} headers */
const accepted = (headers, secrets = /** @type {string | string[]} */ (SECRET), body = BODY, now = later(0)) =>
  verify({ ...HEADERS, ...headers }, body, secrets, now);

/** @param {() => unknown} call @param {RegExp} words */
const refused = (call, words) =>
  assert.throws(call, (error) => error instanceof SignatureError && words.test(error.message));

test("a delivery is verified and described", () => {
  const delivery = accepted(OF_WAKEQ);
  assert.deepEqual(delivery, {
    id: HEADERS["webhook-id"],
    sentAt: later(0),
    module: "WORKER",
    name: "greet",
    modifier: "_",
    canvas: "7",
    attempt: 2,
    value: { test: 2432232314 },
  });
  assert.equal(accepted({}).name, undefined, "from another sender");
  const upper = Object.entries(HEADERS).map(([name, value]) => [name.toUpperCase(), value]);
  assert.ok(verify(Object.fromEntries(upper), BODY, SECRET, later(0)));
  assert.ok(verify(new Headers(HEADERS), new Uint8Array(BODY).buffer, SECRET, later(0)));
});

test("a rotated secret is accepted beside the new one", () => {
  assert.ok(accepted({ "webhook-signature": `${FORMER_SIGNATURE} ${SIGNATURE}` }), "wakeq signs with both");
  assert.ok(accepted({}, [FORMER_SECRET, SECRET]), "the receiver knows both");
  assert.ok(accepted({ "webhook-signature": FORMER_SIGNATURE }, [SECRET, FORMER_SECRET]));
});

test("what is not from wakeq is refused", () => {
  refused(() => accepted({}, FORMER_SECRET), /no signature matches/);
  refused(() => accepted({}, SECRET, Buffer.from('{"test": 2432232315}')), /no signature matches/);
  refused(() => accepted({}, SECRET, Buffer.from('{"test":2432232314}')), /no signature matches/);
  refused(() => accepted({ "webhook-id": "msg_other" }), /no signature matches/);
  refused(() => accepted({ "webhook-timestamp": String(TIME_S + 1) }), /no signature matches/);
  for (const signature of [SIGNATURE.replace("v1,", "v1a,"), SIGNATURE.slice(0, -1), "v1,", ",", "é"]) {
    refused(() => accepted({ "webhook-signature": signature }), /no signature matches/);
  }
  for (const name of Object.keys(HEADERS)) {
    refused(() => accepted({ [name]: "" }), new RegExp(`the header ${name} is missing`));
  }
});

test("an old delivery, and one from the future, is refused", () => {
  for (const seconds of [-300, 300]) assert.ok(accepted({}, SECRET, BODY, later(seconds)));
  for (const seconds of [-301, 301]) refused(() => accepted({}, SECRET, BODY, later(seconds)), /five minutes/);
  for (const time of ["", " ", "1e9", "NaN", "0x10", `-${TIME_S}`, `${TIME_S}.0`, "9".repeat(20)]) {
    assert.throws(() => accepted({ "webhook-timestamp": time }), SignatureError);
  }
  assert.throws(() => accepted({}, SECRET, BODY, new Date(NaN)), SignatureError);
});

test("mistakes of the receiver are named, without the secret", () => {
  for (const secret of ["", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_c2hvcnQ=", `${SECRET}\n`]) {
    assert.throws(() => accepted({}, secret), { name: "TypeError", message: /^a secret is `whsec_`/ });
  }
  assert.throws(() => accepted({}, []), TypeError);
  for (const body of [{ test: 2432232314 }, BODY.toString(), null]) {
    assert.throws(() => accepted({}, SECRET, /** @type {any} */ (body)), { name: "TypeError", message: /bytes/ });
  }
});
