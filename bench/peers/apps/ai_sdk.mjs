// The AI SDK with resumable streams, as its documentation shows it (AI SDK UI, "Chatbot Resume Streams"), on node's own
// HTTP server. POST /api/chat streams the answer and keeps it in Redis; GET /api/chat/ID/stream joins the stream.
// The id of a chat's active stream is in Redis, too, where the documentation's example has a database.
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { Readable } from "node:stream";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.env.PACKAGES}/`);
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { convertToModelMessages, generateId, streamText, UI_MESSAGE_STREAM_HEADERS } = await load("ai");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
const { createResumableStreamContext } = await load("resumable-stream");
const { createClient } = await load("redis");

const provider = createOpenAICompatible({ name: "scripted", baseURL: process.env.OPENAI_BASE_URL, apiKey: "none" });
const context = createResumableStreamContext({ waitUntil: (promise) => promise.catch(() => {}) });
const database = createClient({ url: process.env.REDIS_URL });
await database.connect();

const post = async (request) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  const { id, messages } = JSON.parse(Buffer.concat(parts));
  const result = streamText({ model: provider("scripted"), messages: await convertToModelMessages(messages) });
  return result.toUIMessageStreamResponse({
    generateMessageId: generateId,
    onFinish: () => database.del(`active:${id}`),
    async consumeSseStream({ stream }) {
      const streamId = generateId();
      await context.createNewResumableStream(streamId, () => stream);
      await database.set(`active:${id}`, streamId);
    },
  });
};

const join = async (id) => {
  const streamId = await database.get(`active:${id}`);
  const stream = streamId && (await context.resumeExistingStream(streamId));
  return stream
    ? new Response(stream.pipeThrough(new TextEncoderStream()), { headers: UI_MESSAGE_STREAM_HEADERS })
    : new Response(null, { status: 204 });
};

const serve = async (request, response) => {
  const path = new URL(request.url, "http://localhost").pathname;
  const found = /^\/api\/chat\/([^/]+)\/stream$/.exec(path);
  const answer = request.method === "POST" ? await post(request) : found ? await join(found[1]) : new Response("ok");
  response.writeHead(answer.status, Object.fromEntries(answer.headers)).flushHeaders();
  if (!answer.body) return response.end();
  const body = Readable.fromWeb(answer.body);
  body.on("error", () => response.destroy());
  body.pipe(response);
};

createServer((request, response) =>
  serve(request, response).catch((error) => response.writeHead(500).end(String(error))),
).listen(Number(process.env.PORT), "127.0.0.1");
