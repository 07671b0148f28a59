/** What an answer proposes to say or to do next, as one press each, while the chat rests. */

import type { JsonObject } from "threadcast-client";

import { command } from "../state/actions.ts";
import { withContext } from "../state/place.ts";
import { chat, isRunning, notify } from "../state/session.ts";
import { copy } from "../ui/clipboard.ts";
import { Icon } from "../ui/icon.tsx";
import { resultText } from "./calls.ts";
import { lastMessage } from "./live.ts";
import css from "./calls.module.css";

export function Suggestions() {
  const message = lastMessage.value;
  if (isRunning.value || message?.role !== "assistant") return null;
  const values = message.suggested_values ?? [];
  const actions = message.suggested_actions ?? [];
  if (!values.length && !actions.length) return null;
  return (
    <div class={css.suggestions} role="group" aria-label="Suggestions">
      {values.map((each, at) => (
        <button key={at} type="button" dir="auto" onClick={() => sendValue(each)}>{labelOf(each)}</button>
      ))}
      {actions.map((each, at) => (
        <button key={`a${at}`} type="button" class={css.action} onClick={() => void act(each, resultText(message))}>
          <Icon name={each.handler === "server" ? "send" : "play"} />
          {labelOf(each)}
        </button>
      ))}
    </div>
  );
}

function labelOf({ label, value, action }: JsonObject): string {
  return String(label ?? value ?? action ?? "");
}

/** The value is what the user says; one that is no text goes along as data, under its label. */
function sendValue(suggested: JsonObject): void {
  const { value } = suggested;
  const isText = typeof value === "string" && value.trim() !== "";
  const data = isText ? null : { value };
  void command({ type: "user_message", content: isText ? value : labelOf(suggested), interaction: { type: "value_selected", data }, ...withContext() });
}

/**
 * The server's actions are messages. A client's action is the page's that the assistant is built into: it hears of it as
 * `threadcast:action` on the window, and says that it has taken it by `preventDefault`. What a bare page can do itself
 * stands in OWN.
 */
async function act(suggested: JsonObject, answer: string): Promise<void> {
  const action = String(suggested.action ?? "");
  const label = labelOf(suggested);
  if (suggested.handler === "server") {
    void command({ type: "user_message", content: label, interaction: { type: "action_selected", action }, ...withContext() });
    return;
  }
  const detail = { action, label, chatId: chat.peek()?.id ?? null, messageId: lastMessage.peek()?.message_id ?? null };
  const isTaken = !dispatchEvent(new CustomEvent("threadcast:action", { detail, cancelable: true }));
  if (isTaken) return;
  const own = OWN[action];
  if (own) await own(answer);
  else notify(`“${label}” (${action}) is for the page that this assistant is built into; nothing here carries it out.`);
}

const OWN: Record<string, (answer: string) => Promise<void> | void> = {
  copy,
  copy_answer: copy,
  print: () => print(),
};
