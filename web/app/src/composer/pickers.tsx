/** Which model answers, and in which mode: chosen beside the button that sends, for this chat. */

import { caps, modeOf, models, modes } from "../state/caps.ts";
import { command } from "../state/actions.ts";
import { chat, notifyOf, state } from "../state/session.ts";
import { begin } from "../state/writing.ts";
import css from "./composer.module.css";

/** Sets a parameter of the open chat; one that nobody has begun begins with it. */
async function setParam(patch: object): Promise<boolean> {
  try {
    begin();
    return await command({ type: "set_params", patch });
  } catch (wrong) {
    notifyOf(wrong);
    return false;
  }
}

export function Pickers() {
  const { model = "", mode } = state.value.thread;
  const known = models.value;
  const standard = caps.value?.chat_default_model ?? "";
  const isUnknown = model !== "" && !known.some(({ id }) => id === model);
  return (
    <div class={css.pickers} key={chat.value?.id}>
      <select aria-label="Model" title="Model" value={model} onChange={(event) => void setParam({ model: event.currentTarget.value })}>
        <option value="">{standard ? `Default (${standard})` : "Default model"}</option>
        {isUnknown && <option value={model}>{model}</option>}
        {known.map(({ id }) => (
          <option key={id} value={id}>
            {id}
          </option>
        ))}
      </select>
      {modes.value.length > 1 && (
        <select aria-label="Mode" title="Mode" value={modeOf(mode)} onChange={(event) => void setParam({ mode: event.currentTarget.value })}>
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
