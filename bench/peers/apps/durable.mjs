// @durable-streams/server with files (`durable.mjs server`), or its producer: POST /ask/ID asks the model and writes
// each token into stream ID with the official client's IdempotentProducer, which its README recommends for this.
import { createServer } from "node:http";
import { createRequire } from "node:module";

const { PACKAGES, PORT, DATA, PRODUCER_PORT } = process.env;
const require = createRequire(`${PACKAGES}/`);
const packages = `${PACKAGES}/node_modules/@durable-streams`;

if (process.argv[2] === "server") {
  const { DurableStreamTestServer } = await import(`${packages}/server/dist/index.js`);
  await new DurableStreamTestServer({ port: Number(PORT), host: "127.0.0.1", dataDir: DATA }).start();
} else {
  const { DurableStream, IdempotentProducer } = await import(`${packages}/client/dist/index.js`);
  const OpenAI = require("openai").default;
  const client = new OpenAI();
  createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    if (request.method !== "POST") return response.end();
    const id = request.url.split("/").pop();
    const url = `http://127.0.0.1:${PORT}/${id}`;
    const stream = await DurableStream.create({ url, contentType: "text/plain" });
    response.end("{}");
    const producer = new IdempotentProducer(stream, `model-${id}`, { autoClaim: true, lingerMs: 0 });
    const chunks = await client.chat.completions.create({
      model: "scripted",
      messages: [{ role: "user", content: JSON.parse(Buffer.concat(parts)).prompt }],
      stream: true,
    });
    for await (const chunk of chunks) {
      const text = chunk.choices[0]?.delta?.content;
      if (text) producer.append(text);
    }
    await producer.flush();
    await producer.close();
  }).listen(Number(PRODUCER_PORT), "127.0.0.1");
}
