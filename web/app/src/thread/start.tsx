/**
 * The start screen before the first message: the assistant, its greeting and starters. The start screen is also shown
 * for an address without a chat.
 */

import type { ChatStarter } from "threadcast-client";

import { caps, isScripted } from "../state/caps.ts";
import { assistant, assistantName, backToDefaults, chosen, isBegun, isDefault } from "../state/chosen.ts";
import { remembered } from "../state/choices.ts";
import { go } from "../state/route.ts";
import { say } from "../state/writing.ts";
import { ScriptNote } from "./scripted.tsx";
import css from "./start.module.css";

/** `chatModel` is the model of the whole chat; `model` answers only this message. */
type Try = Pick<ChatStarter, "title" | "text"> & Partial<ChatStarter> & { chatModel?: string };

const TRIES: readonly Try[] = [
  { title: "Explain something", text: "Explain in plain words what a lease is in a distributed system, with a small example." },
  { title: "Compare", text: "Compare server-sent events and WebSockets in a table: direction, reconnecting, proxies, cost." },
  { title: "Write some code", text: "Write a Python function that merges overlapping intervals, with three tests." },
];

/**
 * The starters of a server without a model, which answers with demonstrations. The chat keeps the chosen demonstration.
 */
const DEMO_TRIES: readonly Try[] = [
  { title: "Watch an answer stream", text: "Tell me about the harbour at night.", chatModel: "demo/essay?words=250&rate=60" },
  { title: "See a model think first", text: "Why does the tide come in?", chatModel: "demo/reasoning" },
  { title: "Let it use a tool", text: "What time is it? Use the clock tool.", chatModel: "demo/tools" },
];

/** Returns the assistant's starters, or starters for any assistant if the operator has configured no starters. */
function triesOf(starters: readonly Try[] | null, standard: string): readonly Try[] {
  if (starters) return starters;
  if (standard.startsWith("demo/")) return DEMO_TRIES;
  return isScripted(standard) ? [] : TRIES;
}

export function Start() {
  const standard = caps.value?.chat_default_model;
  const who = assistant.value;
  if (standard === undefined) return <div class={css.start} data-start />; // the assistant is not known yet
  const tries = triesOf(who?.starters ?? null, standard);
  const name = assistantName.value;
  const greeting = who?.greeting || "What shall we talk about?";
  const isNamed = name !== "Assistant";
  return (
    <div class={css.start} data-start>
      <h2 dir="auto">{isNamed ? name : greeting}</h2>
      {isNamed && <p class={css.greeting} dir="auto">{greeting}</p>}
      <ul aria-label="To begin with">
        {tries.map((each) => (
          <li key={each.title}>
            <button type="button" onClick={() => say(each)}>
              <strong dir="auto">{each.title}</strong>
              <span dir="auto">{each.text}</span>
            </button>
          </li>
        ))}
      </ul>
      {isScripted(standard) && <ScriptNote model={standard} isOfServer />}
      {!isBegun.value && !isDefault.value && (
        <p class={css.remembered}>
          As in your last chat: {remembered(chosen.value, name)}
          <button type="button" onClick={backToDefaults}>Back to the defaults</button>
        </p>
      )}
    </div>
  );
}

export function Failed({ wrong }: { wrong: Error }) {
  const isGone = "status" in wrong && (wrong.status === 404 || wrong.status === 410);
  return (
    <div class={css.start} data-start>
      <h2>{isGone ? "This chat does not exist" : "This chat cannot be shown"}</h2>
      <p>{isGone ? "It was deleted, or it belongs to somebody else." : wrong.message}</p>
      <button type="button" class="primary" onClick={() => go(null)}>
        Begin a new chat
      </button>
    </div>
  );
}
