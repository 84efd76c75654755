// An HTTP target: takes signed events from wakeq, and prints each once.
//
//   WEBHOOK_SECRET=whsec_… PORT=8000 node examples/target.js

import { createServer } from "node:http";
import { SignatureError, verify } from "wakeq";

// During a rotation both secrets, separated by a blank.
const secrets = (process.env.WEBHOOK_SECRET ?? "").split(" ");
const done = new Set(); // Yours is in your database, written with the effect.
const BODY_BYTES_MAX = 16 * 2 ** 20;

const server = createServer(async (request, response) => {
  const parts = [];
  let bytes = 0;
  for await (const part of request) {
    bytes += part.length;
    if (bytes > BODY_BYTES_MAX) return response.writeHead(413, { connection: "close" }).end();
    parts.push(part);
  }
  try {
    const { id, name, value } = verify(request.headers, Buffer.concat(parts), secrets);
    if (!done.has(id)) console.log(name, JSON.stringify(value));
    done.add(id);
    response.writeHead(204).end();
  } catch (error) {
    if (!(error instanceof SignatureError)) throw error;
    response.writeHead(401).end();
  }
});

server.listen(Number(process.env.PORT ?? 0), process.env.HOST ?? "127.0.0.1", () => {
  const address = server.address();
  console.log("listening on", typeof address === "object" ? address?.port : address);
});
