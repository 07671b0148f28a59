/**
 * A `ChatTransport` of the AI SDK that uses the Threadcast client. The client reconnects after a loss, and the page's
 * stream continues at its position. `stop()` aborts the run.
 */

import { isAtRest, newId, textOf, type Chat, type ChatState, type Client, type ContentPart, type JsonObject, type Message, type Sendable, type Sent } from "threadcast-client";

import { Chunks, type Chunk } from "./chunks.js";
import { approvalIdOf, isAtPause, requestIdOf, turnAfter, turnParts, uiIdOf, uiMessages, type Named, type UIMessage, type UIPart } from "./messages.js";

export interface TransportOptions {
  /** Tools that the page carries out: `{ name, description, input_schema }`. */
  tools?: { name: string; description: string; input_schema?: JsonObject }[];
  /** The model of the messages that the page sends. */
  model?: string;
}

/** The functions of a page that `follow` calls; `useChat` has the first two. */
export interface Page {
  // any: the page's own type of messages
  setMessages(messages: any[]): void;
  resume(): unknown;
  /** Whether the page sends or streams now. */
  isBusy(): boolean;
}

interface Request {
  trigger: "submit-message" | "regenerate-message";
  chatId: string;
  messageId: string | undefined;
  messages: readonly { id: string; role: string; parts: readonly unknown[] }[];
  abortSignal: AbortSignal | undefined;
}

/**
 * Returns, for a state of the chat, the answer to a request and whether it has ended or waits for the page; null before
 * the answer has begun.
 */
type Look = (state: ChatState) => { turn: Message[]; isOver: boolean } | null;

// any: a stream of chunks in the types of npm `ai`, on which this package does not depend
type Stream = ReadableStream<any>;

export class ThreadcastTransport {
  /** `reconnectToStream` shows the open message from its start. */
  readonly resumeStreamIsReplay = true;
  private readonly chats = new Map<string, Chat>();

  constructor(
    private readonly client: Client,
    private readonly options: TransportOptions = {},
  ) {}

  /** Returns the chat of the Threadcast client, for everything that the AI SDK does not support. */
  chat(id: string): Chat {
    let chat = this.chats.get(id);
    if (!chat || chat.failure) this.chats.set(id, (chat = this.client.chat(id)));
    return chat;
  }

  async sendMessages({ trigger, chatId, messageId, messages, abortSignal }: Request): Promise<Stream> {
    const chat = this.chat(chatId);
    const state = await chat.until(() => true);
    const asked = messages as readonly UIMessage[];
    const named = asked.find(({ id }) => id === messageId) ?? asked.at(-1);
    if (trigger === "submit-message" && named?.role === "assistant") return this.goOn(chat, named, abortSignal);
    const mine = asked.findLast(({ role }) => role === "user");
    if (!mine) throw new Error("there is no message of the user");
    const known = turnStart(state, mine.id);
    const content = contentOf(mine);
    const isSame = known !== undefined && textOf(known) === mine.parts.map(({ text }) => text ?? "").join("\n");
    if (trigger === "regenerate-message" || (isSame && messageId === mine.id)) {
      if (!known) throw new Error("the chat has no such message");
      return this.begin(chat, { type: "regenerate", message_id: known.message_id }, null, abortSignal);
    }
    const { tools } = this.options;
    if (known && !isSame) {
      const client_request_id = requestIdOf(mine.id, newId().replaceAll("-", "").slice(0, 8));
      const edit = { message_id: known.message_id, content, mode: "branch", regenerate: true } as const;
      const command: Sendable = { type: "update_message", client_request_id, ...edit, ...(tools && { tools }) };
      return this.begin(chat, command, client_request_id, abortSignal);
    }
    const client_request_id = requestIdOf(mine.id);
    if (known) return this.stream(chat, [], following(known.message_id), abortSignal);
    const params = this.options.model ? { params: { model: this.options.model } } : {};
    const command: Sendable = { type: "user_message", client_request_id, content, ...params, ...(tools && { tools }) };
    return this.begin(chat, command, client_request_id, abortSignal);
  }

  async reconnectToStream({ chatId, abortSignal }: { chatId: string; abortSignal?: AbortSignal }): Promise<Stream | null> {
    const chat = this.chat(chatId);
    const state = await chat.until(() => true);
    if (isAtRest(state) || isAtPause(state)) return null;
    return this.stream(chat, [], following(undefined), abortSignal);
  }

  /**
   * Keeps a page equal to the chat, until the returned function is called: sets the page's messages while no run is
   * open, and resumes when another tab or client has begun a run.
   */
  follow(chatId: string, page: Page): () => void {
    const chat = this.chat(chatId);
    let told: unknown;
    const look = () => {
      const { state } = chat;
      if (!chat.isReady || page.isBusy()) return;
      if (!isAtRest(state) && !isAtPause(state)) {
        if (told === state.runtime.run_id) return;
        told = state.runtime.run_id;
        const messages = uiMessages(state);
        if (messages.at(-1)?.role === "assistant") messages.pop(); // resuming shows the answer from its start
        page.setMessages(messages);
        void Promise.resolve(page.resume()).then(look, look);
      } else if (told !== state.position) {
        told = state.position;
        page.setMessages(uiMessages(state));
      }
    };
    const stop = chat.subscribe(() => queueMicrotask(look));
    look();
    return stop;
  }

  private begin(chat: Chat, command: Sendable, requestId: string | null, signal?: AbortSignal): Stream {
    const before = chat.state.runtime.run_id;
    const old = new Set(chat.state.path); // an answer that is regenerated stays on the path until the new run has begun
    const sent = chat.send(command);
    const look: Look = (state) => {
      const node = requestId ? [...state.nodes.values()].find((each) => each.client_request_id === requestId) : undefined;
      const hasBegun = requestId ? node !== undefined : state.runtime.run_id !== before;
      if (!hasBegun || (node && !state.path.includes(node.message_id))) return null;
      const turn = turnAfter(state, node?.message_id).filter(({ message_id }) => !old.has(message_id));
      return { turn, isOver: isAtRest(state) || isAtPause(state) };
    };
    return this.stream(chat, [sent], look, signal);
  }

  private goOn(chat: Chat, answered: UIMessage, signal?: AbortSignal): Stream {
    const { state } = chat;
    const parts = new Map(answered.parts.map((part) => [part["toolCallId"], part]));
    const isCurrent = turnAfter(state).some(({ message_id }) => message_id === answered.id);
    const commands = isCurrent ? answersIn(state, parts) : [];
    const users = shownUsers(state).filter(({ message_id }) => turnAfter(state, message_id)[0]?.message_id === answered.id);
    const turn = users[0] ? turnAfter(state, users[0].message_id) : [];
    let steps = answered.parts.filter(({ type }) => type === "step-start").length;
    const known: Named[] = [];
    for (const named of turnParts(state, turn)) {
      if (named.part.type === "step-start") steps -= 1;
      if (steps < 0) break;
      const mine = parts.get(named.part["toolCallId"]);
      known.push(named.part["toolCallId"] && mine ? { key: named.key, part: mine } : named);
    }
    const waiting = new Set<Sent>();
    const sent = commands.map((command) => chat.send(command));
    for (const each of sent) {
      waiting.add(each);
      const settle = () => waiting.delete(each);
      each.acked.then(settle, settle);
    }
    const look: Look = (now) => {
      const shown = users[0] ? turnAfter(now, users[0].message_id) : [];
      return { turn: shown, isOver: waiting.size === 0 && (!isCurrent || isAtRest(now) || isAtPause(now)) };
    };
    const stale = answered.parts.filter(
      (part) => part["state"] === "approval-responded" && !turnParts(state, turn).some(({ part: { toolCallId } }) => toolCallId === part["toolCallId"]),
    );
    return this.stream(chat, sent, look, signal, new Chunks(known), stale, commands.length === 0);
  }

  private stream(
    chat: Chat,
    sent: readonly Sent[],
    look: Look,
    signal?: AbortSignal,
    chunks = new Chunks(),
    stale: readonly UIPart[] = [],
    isQuiet = false,
  ): Stream {
    let close = () => {};
    let isEnded = false;
    return new ReadableStream<Chunk>({
      start: (controller) => {
        const end = (last: Chunk[]) => {
          if (isEnded) return;
          isEnded = true;
          close();
          for (const chunk of last) controller.enqueue(chunk);
          controller.close();
        };
        const take = () => {
          if (isEnded || !chat.isReady) return;
          if (chat.failure) return end(chunks.end("error", chat.failure.message));
          const { state } = chat;
          const seen = look(state);
          if (!seen) return;
          const first = seen.turn.find(({ role }) => role === "assistant");
          if (first) for (const chunk of chunks.next(first.message_id, turnParts(state, seen.turn))) controller.enqueue(chunk);
          if (!seen.isOver) return;
          const { outcome, error } = state.runtime;
          if (isAtPause(state)) return end(chunks.end("tool-calls"));
          const answers = stale.map(({ toolCallId }) => {
            return { type: "tool-output-error", toolCallId, errorText: "this approval is no longer open" };
          });
          if (isQuiet) return end([...answers, ...chunks.emptyStep(), ...chunks.end("stop")]);
          if (outcome === "aborted" || outcome === "interrupted") return end([{ type: "abort", reason: outcome }, ...chunks.end("other")]);
          if (outcome === "error") return end(chunks.end("error", error ?? "the run failed"));
          end(chunks.end(outcome === "limit" ? "length" : "stop"));
        };
        const stopped = () => {
          if (isEnded) return;
          isEnded = true;
          close();
          this.halt(chat, sent, look);
          controller.error(new DOMException("The page stopped the answer.", "AbortError"));
        };
        const unsubscribe = chat.subscribe(take);
        close = () => {
          unsubscribe();
          signal?.removeEventListener("abort", stopped);
        };
        if (signal?.aborted) return stopped();
        signal?.addEventListener("abort", stopped);
        for (const each of sent) each.acked.then(take, (wrong: Error) => (isQuiet || look(chat.state) ? take() : end(chunks.end("error", wrong.message))));
        take();
      },
      cancel: () => {
        isEnded = true;
        close();
      },
    });
  }

  /** Aborts the run of a stream, or removes its message from the queue. */
  private halt(chat: Chat, sent: readonly Sent[], look: Look): void {
    const { run_id } = chat.state.runtime;
    if (look(chat.state) && run_id) {
      if (!isAtRest(chat.state)) chat.send({ type: "abort", run_id });
      return;
    }
    for (const { requestId } of sent) void chat.cancel(requestId).catch(() => {}); // offline: the run continues
  }
}

function following(userId: string | undefined): Look {
  return (state) => ({ turn: turnAfter(state, userId), isOver: isAtRest(state) || isAtPause(state) });
}

function shownUsers(state: ChatState): Message[] {
  return state.path.map((id) => state.nodes.get(id) as Message).filter(({ role }) => role === "user");
}

function turnStart(state: ChatState, uiId: string): Message | undefined {
  return shownUsers(state).find((message) => uiIdOf(message) === uiId);
}

/** Returns the commands for the answers that the chat still waits for. */
function answersIn(state: ChatState, parts: ReadonlyMap<unknown, UIPart>): Sendable[] {
  const found: Sendable[] = [];
  for (const { tool_call_id } of state.runtime.ide_calls ?? []) {
    const part = parts.get(tool_call_id);
    if (part?.["state"] === "output-error") {
      found.push({ type: "ide_tool_result", tool_call_id, content: String(part["errorText"] ?? "the tool failed"), tool_failed: true });
    } else if (part?.["state"] === "output-available") {
      const { output } = part;
      found.push({ type: "ide_tool_result", tool_call_id, content: typeof output === "string" ? output : JSON.stringify(output ?? null) });
    }
  }
  for (const reason of state.runtime.pause_reasons) {
    const part = parts.get(reason.tool_call_id);
    const { tool_call_id, input_hash } = reason;
    const decision = { type: "tool_decision", tool_call_id, input_hash: input_hash || null } as const;
    if (reason.type === "question") {
      if (part?.["state"] === "output-error") found.push({ ...decision, accepted: false });
      if (part?.["state"] !== "output-available") continue;
      found.push({ ...decision, accepted: true, edited_input: { answer: (part["output"] ?? null) as JsonObject } });
      continue;
    }
    const approval = (part?.["approval"] ?? {}) as { id?: string; approved?: boolean; reason?: string };
    if (part?.["state"] !== "approval-responded" || approval.id !== approvalIdOf(reason)) continue;
    found.push({ ...decision, accepted: approval.approved === true, note: approval.reason ?? null });
  }
  return found;
}

function contentOf(message: UIMessage): string | ContentPart[] {
  const parts = message.parts.flatMap((part): ContentPart[] => {
    if (part.type === "text") return part["text"] ? [{ type: "text", text: String(part["text"]) }] : [];
    if (part.type !== "file") return [];
    const { url, mediaType, filename } = part as { url?: string; mediaType?: string; filename?: string };
    if (mediaType?.startsWith("image/")) return [{ type: "image_url", image_url: { url: url ?? "" } }];
    return [{ type: "file", name: filename ?? "file", mime: mediaType ?? "", data: url?.split(",", 2)[1] ?? "" }];
  });
  const [only] = parts;
  if (parts.length === 1 && only && "text" in only && !("name" in only)) return String(only.text);
  return parts.length ? parts : "";
}
