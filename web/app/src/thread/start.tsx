/** Before the first message: what one may try here. And what is shown in place of a chat that cannot be. */

import { newId } from "threadcast-client";

import { caps } from "../state/caps.ts";
import { go } from "../state/route.ts";
import { chat, notifyOf } from "../state/session.ts";
import css from "./thread.module.css";

interface Try {
  readonly title: string;
  readonly text: string;
  /** For this message alone. */
  readonly model?: string;
}

const TRIES: readonly Try[] = [
  { title: "Explain something", text: "Explain in plain words what a lease is in a distributed system, with a small example." },
  { title: "Compare", text: "Compare server-sent events and WebSockets in a table: direction, reconnecting, proxies, cost." },
  { title: "Write some code", text: "Write a Python function that merges overlapping intervals, with three tests." },
];

/** A server without a key answers with these. */
const DEMO_TRIES: readonly Try[] = [
  { title: "Watch an answer stream", text: "Tell me about the harbour at night.", model: "demo/essay?words=250&rate=60" },
  { title: "See a model think first", text: "Why does the tide come in?", model: "demo/reasoning" },
  { title: "Let it use a tool", text: "What time is it? Use the clock tool.", model: "demo/tools" },
];

export function Start() {
  const standard = caps.value?.chat_default_model;
  const tries = standard === undefined ? [] : standard.startsWith("demo/") ? DEMO_TRIES : TRIES;
  const begin = ({ text, model }: Try) => {
    if (!chat.peek()) go(newId());
    try {
      chat.peek()?.send({ type: "user_message", content: text, ...(model && { params: { model } }) });
    } catch (wrong) {
      notifyOf(wrong);
    }
  };
  return (
    <div class={css.start}>
      <h2>What shall we talk about?</h2>
      <ul>
        {tries.map((each) => (
          <li key={each.title}>
            <button type="button" onClick={() => begin(each)}>
              <strong>{each.title}</strong>
              <span>{each.text}</span>
            </button>
          </li>
        ))}
      </ul>
    </div>
  );
}

export function Failed({ wrong }: { wrong: Error }) {
  const isGone = "status" in wrong && (wrong.status === 404 || wrong.status === 410);
  return (
    <div class={css.start}>
      <h2>{isGone ? "This chat is not here" : "This chat cannot be shown"}</h2>
      <p>{isGone ? "It was deleted, or it belongs to somebody else." : wrong.message}</p>
      <button type="button" class="primary" onClick={() => go(null)}>
        Begin a new chat
      </button>
    </div>
  );
}
