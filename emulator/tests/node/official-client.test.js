// The official Node client, as an application uses it, against the emulator that
// PUBSUB_EMULATOR_HOST names.
//
// Nothing here waits for a length of time: everything waits for what has to happen, and gives up
// after PATIENCE.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { after, test } from "node:test";

import { AckResponses, PubSub } from "@google-cloud/pubsub";

const PATIENCE = 30_000;
const pubsub = new PubSub({ projectId: "official-client" });

after(() => pubsub.close());

/** A topic of a test's own. */
async function newTopic(options) {
  const [topic] = await pubsub.createTopic(`t-${randomUUID()}`);
  topic.setPublishOptions(options ?? {});
  return topic;
}

async function subscribe(topic, settings, options) {
  const [subscription] = await topic.createSubscription(`s-${randomUUID()}`, settings);
  subscription.setOptions(options ?? {});
  return subscription;
}

const publish = (topic, texts, rest) =>
  Promise.all(texts.map((text) => topic.publishMessage({ data: Buffer.from(text), ...rest })));

/** Hands each message to `each`, until it returns true. */
async function receive(subscription, each) {
  try {
    await new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error("too few messages arrived")), PATIENCE);
      const end = (settle, value) => {
        clearTimeout(late);
        settle(value);
      };
      subscription.on("error", (error) => end(reject, error));
      // One after the other, in the order in which they arrive.
      let last = Promise.resolve();
      subscription.on("message", (message) => {
        last = last.then(async () => (await each(message)) && end(resolve));
        last.catch((error) => end(reject, error));
      });
    });
  } finally {
    await subscription.close();
  }
}

const range = (from, to) => Array.from({ length: to - from }, (_, at) => from + at);

test("messages of a key arrive in order, also after a nack", async () => {
  const topic = await newTopic({ messageOrdering: true });
  const subscription = await subscribe(topic, { enableMessageOrdering: true });
  const [keys, count] = [["a", "b", "c"], 30];
  for (const key of keys) await publish(topic, range(0, count).map(String), { orderingKey: key });
  const done = new Map(keys.map((key) => [key, []]));
  const givenBack = new Set();
  const isOver = (key) => done.get(key).includes(10) && done.get(key).at(-1) === count - 1;
  await receive(subscription, (message) => {
    const [key, number] = [message.orderingKey, Number(message.data)];
    if (number === 10 && !givenBack.has(key)) {
      givenBack.add(key);
      message.nack();
    } else {
      done.get(key).push(number);
      message.ack();
    }
    return keys.every(isOver);
  });
  for (const key of keys) {
    // Later ones may have been on their way before the nack; they come again after what was given
    // back.
    const numbers = done.get(key);
    assert.deepEqual(numbers.slice(0, 10), range(0, 10));
    assert.deepEqual(numbers.slice(numbers.indexOf(10)), range(10, count));
  }
});

test("exactly-once delivery tells what became of an answer", async () => {
  const topic = await newTopic();
  const subscription = await subscribe(topic, { enableExactlyOnceDelivery: true });
  await publish(topic, ["once"]);
  const seen = [];
  await receive(subscription, async (message) => {
    seen.push(message);
    const answer = seen.length === 1 ? message.nackWithResponse() : message.ackWithResponse();
    assert.equal(await answer, AckResponses.Success);
    return seen.length === 2;
  });
  assert.equal(seen[0].id, seen[1].id);
  assert.notEqual(seen[0].ackId, seen[1].ackId);
});

test("flow control leaves the rest to others", async () => {
  const topic = await newTopic();
  // The limit holds for each of the client's streams.
  const options = { flowControl: { maxMessages: 2 }, streamingOptions: { maxStreams: 1 } };
  const subscription = await subscribe(topic, {}, options);
  const texts = ["a", "b", "c", "d", "e"];
  const [held, taken] = [[], []];
  await publish(topic, texts);
  subscription.on("message", (message) => held.push(message));
  const signal = AbortSignal.timeout(PATIENCE);
  while (held.length < 2) await once(subscription, "message", { signal });
  await receive(pubsub.subscription(subscription.name), (message) => {
    taken.push(message);
    message.ack();
    return taken.length === 3;
  });
  const all = [...held, ...taken].map((message) => message.data.toString());
  assert.deepEqual([held.length, all.sort()], [2, texts]);
  held.forEach((message) => message.ack());
  await subscription.close();
});

test("what always fails goes to the dead-letter topic", async () => {
  const [topic, dead] = [await newTopic(), await newTopic()];
  const letters = await subscribe(dead);
  const policy = { deadLetterTopic: dead.name, maxDeliveryAttempts: 5 };
  const subscription = await subscribe(topic, { deadLetterPolicy: policy });
  await publish(topic, ["poison"], { attributes: { colour: "red" } });
  const attempts = [];
  await receive(subscription, (message) => {
    attempts.push(message.deliveryAttempt);
    message.nack();
    return attempts.length === 5;
  });
  let letter;
  await receive(letters, (message) => {
    letter = message;
    message.ack();
    return true;
  });
  assert.deepEqual(attempts, [1, 2, 3, 4, 5]);
  assert.deepEqual([letter.data.toString(), letter.attributes.colour], ["poison", "red"]);
  assert.equal(letter.attributes.CloudPubSubDeadLetterSourceDeliveryCount, "5");
});

test("a filter lets through what matches", async () => {
  const topic = await newTopic();
  const subscription = await subscribe(topic, { filter: 'attributes.colour = "red" OR attributes:last' });
  await publish(topic, ["green"], { attributes: { colour: "green" } });
  await publish(topic, ["red"], { attributes: { colour: "red" } });
  await publish(topic, ["last"], { attributes: { last: "" } });
  const seen = [];
  await receive(subscription, (message) => {
    seen.push(message.data.toString());
    message.ack();
    return seen.includes("last");
  });
  assert.deepEqual(seen.sort(), ["last", "red"]);
});

test("a seek to a snapshot brings back what was acknowledged since", async () => {
  const topic = await newTopic();
  const subscription = await subscribe(topic);
  const [snapshot] = await subscription.createSnapshot(`n-${randomUUID()}`);
  const [id] = await publish(topic, ["again"]);
  const acknowledged = async () => {
    let seen;
    await receive(pubsub.subscription(subscription.name), (message) => {
      seen = message.id;
      message.ack();
      return true;
    });
    return seen;
  };
  assert.equal(await acknowledged(), id);
  await subscription.seek(snapshot.name);
  assert.equal(await acknowledged(), id);
  await snapshot.delete();
});

test("a push endpoint gets messages until it agrees", async () => {
  const [posted, statuses] = [[], [500, 204]];
  const server = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    posted.push(JSON.parse(Buffer.concat(chunks)));
    response.writeHead(statuses.shift() ?? 204).end();
    server.emit("posted");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    const topic = await newTopic();
    const pushEndpoint = `http://127.0.0.1:${server.address().port}/`;
    const subscription = await subscribe(topic, { pushConfig: { pushEndpoint } });
    const signal = AbortSignal.timeout(PATIENCE);
    const [id] = await publish(topic, ["pushed"], { attributes: { colour: "red" } });
    while (posted.length < 2) await once(server, "posted", { signal });
    assert.deepEqual(posted.map(({ message }) => message.messageId), [id, id]);
    assert.equal(posted[0].subscription, subscription.name);
    assert.deepEqual(posted[0].message.attributes, { colour: "red" });
  } finally {
    server.close();
    server.closeAllConnections();
  }
});

test("what is missing, or there already, is an error with its code", async () => {
  const topic = await newTopic();
  await assert.rejects(pubsub.createTopic(topic.name), { code: 6 });
  await assert.rejects(pubsub.topic("none").getMetadata(), { code: 5 });
  await assert.rejects(topic.createSubscription("s-none", { filter: "nonsense" }), { code: 3 });
});
