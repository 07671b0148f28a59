/**
 * The contents of the developer's drawer: the chat's numbers, buttons that cause faults, the event log, and the traces
 * of its runs.
 */

import { signal } from "@preact/signals";

import { chat, live } from "../state/session.ts";
import { Numbers } from "./numbers.tsx";
import { EventLog } from "./event_log.tsx";
import { Runs } from "./runs.tsx";
import css from "./contents.module.css";
import drawerCss from "./drawer.module.css";


const TABS = { events: "Events", runs: "Runs" } as const;
type Tab = keyof typeof TABS;
const shown = signal<Tab>("events");

export function Contents() {
  if (!chat.value) return <p class={drawerCss.hint}>Open or begin a chat to see its events and runs.</p>;
  return (
    <>
      <Numbers />
      <div role="tablist" class={css.tabs} aria-label="Sections" onKeyDown={walk}>
        {(Object.keys(TABS) as Tab[]).map((tab) => (
          <button
            key={tab}
            type="button"
            role="tab"
            id={`tab-${tab}`}
            aria-selected={shown.value === tab}
            aria-controls="drawer-panel"
            tabIndex={shown.value === tab ? 0 : -1}
            onClick={() => (shown.value = tab)}
          >
            {TABS[tab]}
          </button>
        ))}
      </div>
      <div role="tabpanel" id="drawer-panel" class={css.panel} aria-labelledby={`tab-${shown.value}`}>
        {shown.value === "events" && <EventLog key={chat.value.id} />}
        {shown.value === "runs" && (live.value.position ? <Runs key={chat.value.id} /> : <p class={drawerCss.hint}>There are no runs yet.</p>)}
      </div>
    </>
  );
}

function walk(event: KeyboardEvent): void {
  if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
  shown.value = shown.value === "events" ? "runs" : "events";
  document.getElementById(`tab-${shown.value}`)?.focus();
}
