/** Shows the next messages and actions that an answer suggests as buttons, while the chat rests. */

import { textOf, type JsonObject } from "threadcast-client";

import { command } from "../state/actions.ts";
import { withContext } from "../state/page_context.ts";
import { chat, isRunning, notify } from "../state/session.ts";
import { copy } from "../ui/clipboard.ts";
import { Icon } from "../ui/icon.tsx";
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
        <button key={`a${at}`} type="button" class={css.action} onClick={() => void act(each, textOf(message))}>
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

/** A suggested text is sent as the user's message; another value is sent as data, with the label as text. */
function sendValue(suggested: JsonObject): void {
  const { value } = suggested;
  const isText = typeof value === "string" && value.trim() !== "";
  const data = isText ? null : { value };
  void command({ type: "user_message", content: isText ? value : labelOf(suggested), interaction: { type: "value_selected", data }, ...withContext() });
}

/**
 * An action of the server is sent as a message. An action of the client is for the page that embeds the assistant: it
 * receives the event `threadcast:action` on the window, and confirms with `preventDefault` that it carries out the
 * action. OWN has the actions that this page carries out itself.
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
  else notify(`“${label}” (${action}) is an action of the page that embeds this assistant. It does not work here.`);
}

const OWN: Record<string, (answer: string) => Promise<void> | void> = {
  copy,
  copy_answer: copy,
  print: () => print(),
};
