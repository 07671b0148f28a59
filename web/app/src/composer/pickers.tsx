/** Menus for the model and the mode, beside the send button. A choice applies to this chat and to later new chats. */

import { caps, models, modes } from "../state/caps.ts";
import type { Choices } from "../state/choices.ts";
import { assistant, chosen, isBegun, remember } from "../state/chosen.ts";
import { command } from "../state/actions.ts";
import { chat, state } from "../state/session.ts";
import css from "./composer.module.css";

/** Sets a parameter of the chat; a new chat gets it with its first message. */
function choose(choice: Partial<Choices>): void {
  remember(choice);
  if (isBegun.peek()) void command({ type: "set_params", patch: choice });
}

export function Pickers() {
  const model = (isBegun.value ? state.value.thread.model : chosen.value.model) ?? "";
  const known = models.value;
  const ofMode = assistant.value?.model;
  const standard = ofMode || (caps.value?.chat_default_model ?? "");
  const isUnknown = model !== "" && !known.some(({ id }) => id === model);
  return (
    <div class={css.pickers} key={chat.value?.id}>
      {!ofMode?.startsWith("agents/") && (
        <select aria-label="Model" title="Model" value={model} onChange={(event) => choose({ model: event.currentTarget.value })}>
          <option value="">{standard ? `Default (${standard})` : "Default model"}</option>
          {isUnknown && <option value={model}>{model}</option>}
          {known.map(({ id }) => (
            <option key={id} value={id}>
              {id}
            </option>
          ))}
        </select>
      )}
      {modes.value.length > 1 && (
        <select aria-label="Mode" title="Mode" value={assistant.value?.id} onChange={(event) => choose({ mode: event.currentTarget.value })}>
          {modes.value.map(({ id, title, description }) => (
            <option key={id} value={id} title={description}>
              {title || id}
            </option>
          ))}
        </select>
      )}
    </div>
  );
}
