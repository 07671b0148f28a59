// resumable-stream as its README shows it ("usage with explicit resumption"), on node's own HTTP server.
// POST /stream/ID makes the stream from the official openai client's chunks; GET /stream/ID?resumeAt=N joins it.
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { Readable } from "node:stream";

const require = createRequire(`${process.env.PACKAGES}/`);
const { createResumableStreamContext } = require("resumable-stream");
const OpenAI = require("openai").default;

const client = new OpenAI();
const context = createResumableStreamContext({ waitUntil: (promise) => promise.catch(() => {}) });

const answer = (prompt) =>
  new ReadableStream({
    async start(controller) {
      const chunks = await client.chat.completions.create({
        model: "scripted",
        messages: [{ role: "user", content: prompt }],
        stream: true,
      });
      for await (const chunk of chunks) {
        const text = chunk.choices[0]?.delta?.content;
        if (text) controller.enqueue(`data: ${JSON.stringify(text)}\n\n`);
      }
      controller.close();
    },
  });

const serve = async (request, response) => {
  const url = new URL(request.url, "http://localhost");
  const id = url.pathname.slice("/stream/".length);
  let stream;
  if (request.method === "POST") {
    const parts = [];
    for await (const part of request) parts.push(part);
    const prompt = JSON.parse(Buffer.concat(parts)).prompt;
    stream = await context.createNewResumableStream(id, () => answer(prompt));
  } else if (url.pathname.startsWith("/stream/")) {
    const resumeAt = url.searchParams.get("resumeAt");
    stream = await context.resumeExistingStream(id, resumeAt ? parseInt(resumeAt) : undefined);
  }
  if (!stream) {
    response.writeHead(url.pathname.startsWith("/stream/") ? 422 : 200).end("Stream is already done");
    return;
  }
  response.writeHead(200, { "Content-Type": "text/event-stream" }).flushHeaders();
  const body = Readable.fromWeb(stream.pipeThrough(new TextEncoderStream()));
  body.on("error", () => response.destroy());
  body.pipe(response);
};

createServer((request, response) =>
  // A stream whose producer has died is never acknowledged, which is an error after a second.
  serve(request, response).catch((error) => response.writeHead(500).end(String(error))),
).listen(Number(process.env.PORT), "127.0.0.1");
