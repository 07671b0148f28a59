/**
 * The settings dialog, for the open chat and for this browser. The dialog's code is loaded when the dialog is first
 * opened.
 */

import { computed, signal } from "@preact/signals";
import { useEffect, useId } from "preact/hooks";

import { caps, models, modes } from "../state/caps.ts";
import { remembered } from "../state/choices.ts";
import { assistant, backToDefaults, chosen, isBegun, isDefault } from "../state/chosen.ts";
import { isSettingsOpen } from "../state/layout.ts";
import { title } from "../state/session.ts";
import { THEMES, theme } from "../state/theme.ts";
import { Dialog } from "../ui/dialog.tsx";
import { ANSWERS, APPROVALS, MORE, TOOLS } from "./params.ts";
import { Remembered } from "./remembered.tsx";
import { Row, Rows } from "./rows.tsx";
import { Tools } from "./tools.tsx";
import { keepUp, modeId, set, values } from "./values.ts";
import css from "./settings.module.css";

const TABS = { answers: "Answers", tools: "Tools", approvals: "Approvals", browser: "This browser" } as const;
type Tab = keyof typeof TABS;
const NAMES = Object.keys(TABS) as Tab[];
const tab = signal<Tab>("answers");

export function Settings() {
  useEffect(keepUp, []);
  const id = useId();
  return (
    <Dialog title="Settings" wide onClose={() => (isSettingsOpen.value = false)}>
      <div class={css.settings}>
        <div role="tablist" aria-label="Kinds of settings" onKeyDown={walk}>
          {NAMES.map((name) => (
            <button
              key={name}
              id={`${id}-${name}`}
              role="tab"
              aria-selected={tab.value === name}
              aria-controls={`${id}-panel`}
              tabIndex={tab.value === name ? 0 : -1}
              onClick={() => (tab.value = name)}
            >
              {TABS[name]}
            </button>
          ))}
        </div>
        <div role="tabpanel" id={`${id}-panel`} aria-labelledby={`${id}-${tab.value}`} tabIndex={-1}>
          {tab.value !== "browser" && (
            <p class={css.hint}>{isBegun.value ? `For the chat “${title.value}”, on all your devices.` : "For your next new chat."}</p>
          )}
          {tab.value === "answers" && <Answers />}
          {tab.value === "tools" && (
            <>
              <Tools />
              <h3>How tools are used</h3>
              <Rows params={TOOLS} />
            </>
          )}
          {tab.value === "approvals" && (
            <>
              <Remembered />
              <Rows params={APPROVALS.filter(({ key }) => isAutonomousAllowed.value || key !== "autonomous_no_confirm")} />
              {!isAutonomousAllowed.value && (
                <p class={css.hint}>The operator of this server does not allow running everything without asking.</p>
              )}
            </>
          )}
          {tab.value === "browser" && <Browser />}
        </div>
      </div>
    </Dialog>
  );
}

/** Arrow keys move from tab to tab (WAI-ARIA, tabs). */
function walk(event: KeyboardEvent): void {
  const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  tab.value = NAMES[(NAMES.indexOf(tab.value) + step + NAMES.length) % NAMES.length] as Tab;
  const list = event.currentTarget as HTMLElement;
  queueMicrotask(() => list.querySelector<HTMLElement>("[aria-selected=true]")?.focus());
}

/** Whether the operator allows the mode of this chat to run every tool without asking. */
const isAutonomousAllowed = computed(() => assistant.value?.allows_autonomous ?? false);

function Answers() {
  const id = useId();
  const model = values.value.model;
  const isOwn = model?.layer === "thread" || model?.layer === "browser";
  const own = isOwn ? String(model.value) : "";
  const below = model && !isOwn ? String(model.value) : caps.value?.chat_default_model;
  const isUnknown = own !== "" && !models.value.some((one) => one.id === own);
  return (
    <>
      <Row id={id} name="model" label="Model" help="The model that writes the next answers in this chat.">
        <select id={id} value={own} onChange={(event) => void set("model", event.currentTarget.value)}>
          <option value="">Default{below && ` (${below})`}</option>
          {isUnknown && <option value={own}>{own}</option>}
          {models.value.map((one) => (
            <option key={one.id} value={one.id}>
              {one.id}
            </option>
          ))}
        </select>
      </Row>
      {modes.value.length > 0 && (
        <Row id={`${id}-mode`} name="mode" label="Mode" help={modes.value.find((one) => one.id === modeId.value)?.description || "The assistant that answers in this chat."}>
          <select id={`${id}-mode`} value={modeId.value} disabled={modes.value.length < 2} onChange={(event) => void set("mode", event.currentTarget.value)}>
            {modes.value.map((one) => (
              <option key={one.id} value={one.id}>
                {one.title || one.id}
              </option>
            ))}
          </select>
        </Row>
      )}
      <Rows params={ANSWERS} />
      <details>
        <summary>More</summary>
        <Rows params={MORE} />
      </details>
    </>
  );
}

function modeNameOf(mode: string): string {
  return modes.value.find(({ id }) => id === mode)?.title || mode;
}

const THEME_WORDS = { system: "As the system", light: "Light", dark: "Dark" } as const;

function Browser() {
  return (
    <>
      <fieldset class={css.setting}>
        <legend class={css.what}>Colours</legend>
        <div class={`${css.control} ${css.choices}`}>
          {THEMES.map((one) => (
            <label key={one}>
              <input type="radio" name="theme" checked={theme.value === one} onChange={() => (theme.value = one)} /> {THEME_WORDS[one]}
            </label>
          ))}
        </div>
      </fieldset>
      <div class={css.setting}>
        <div class={css.what}>
          <span id="new-chats">New chats</span>
          <p>New chats begin with the model, the mode and the instructions that you last chose in this browser.</p>
        </div>
        <div class={css.control} role="group" aria-labelledby="new-chats">
          <p class={css.origin}>{isDefault.value ? "With the server's defaults." : `With ${remembered(chosen.value, modeNameOf(chosen.value.mode))}.`}</p>
          <button type="button" disabled={isDefault.value} onClick={backToDefaults}>Back to the defaults</button>
        </div>
      </div>
    </>
  );
}
