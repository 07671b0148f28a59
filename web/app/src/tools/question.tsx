/** One call that a person must allow: as it is, with other arguments, always, or not at all. */

import type { JsonObject, PauseReason } from "threadcast-client";
import { useId, useRef, useState } from "preact/hooks";

import { connection } from "../state/session.ts";
import { Icon } from "../ui/icon.tsx";
import { mcpServerOf, shownName } from "./calls.ts";
import { answer, isSent, questionKey, standingOf } from "./decide.ts";
import { Editor } from "./editor.tsx";
import { useFocused } from "./focus.ts";
import { BROWSER_PARTS, BrowserParts } from "./browser_parts.tsx";
import { Fields, LongText } from "./value.tsx";
import css from "./calls.module.css";
import asksCss from "./questions.module.css";

const ASKS: Record<string, string> = {
  confirmation: "wants to run",
  browser_context: "wants to see your browser",
  outcome_unknown: "was cut off and may have run. Run it again?",
  denial: "is not allowed to run",
};

export function Question({ reason }: { reason: PauseReason }) {
  const [mode, setMode] = useState<"plain" | "edit" | "note">("plain");
  const [shared, setShared] = useState<ReadonlySet<string>>(new Set(BROWSER_PARTS.map((part) => part.key)));
  const box = useRef<HTMLDivElement>(null);
  const heading = useId();
  const key = questionKey(reason);
  const { tool_call_id, tool_name, type } = reason;
  const input = reason.input ?? {};
  const hasInput = Object.keys(input).length > 0;
  const server = mcpServerOf(tool_name);

  const decide = (accepted: boolean, more: { remember?: "tool" | "server"; edited_input?: JsonObject; note?: string } = {}) => {
    if (type === "browser_context" && accepted) {
      const parts = Object.fromEntries(BROWSER_PARTS.map((part) => [part.key, shared.has(part.key)]));
      answer([key], { type: "browser_context_decision", pending_message_id: tool_call_id, ...parts });
    } else answer([key], { type: "tool_decision", tool_call_id, accepted, input_hash: reason.input_hash || null, ...more });
  };
  const leave = () => {
    setMode("plain");
    box.current?.querySelector<HTMLElement>("button")?.focus();
  };
  return (
    <div
      class={asksCss.question}
      role="group"
      aria-labelledby={heading}
      data-call={tool_call_id}
      ref={box}
      onKeyDown={(event) => {
        if (event.key !== "Escape" || mode === "plain") return;
        event.stopPropagation();
        leave();
      }}
    >
      <header id={heading}>
        <Icon name={type === "outcome_unknown" ? "warn" : "tool"} />
        <span>
          <b title={tool_name}>{shownName(tool_name)}</b>
          {server && <span class={css.quiet}> of {server}</span>} {ASKS[type] ?? "waits for your decision"}
        </span>
        {reason.rule && type !== "confirmation" && <span class={asksCss.questionRule}>{reason.rule}</span>}
      </header>
      {mode === "edit" ? (
        <Editor value={input} submitLabel="Allow with these" isBusy={isSent(key)} onSubmit={(edited) => decide(true, edited ? { edited_input: edited } : {})} onLeave={leave} />
      ) : (
        hasInput && (
          <div class={asksCss.questionInput} tabIndex={0} role="group" aria-label="Arguments">
            <Input input={input} />
          </div>
        )
      )}
      {type === "browser_context" && mode !== "edit" && <BrowserParts chosen={shared} onChange={setShared} />}
      {mode === "plain" && <Choices reason={reason} server={server} hasInput={hasInput} isBusy={isSent(key)} decide={decide} onMode={setMode} />}
      {mode === "note" && <Note isBusy={isSent(key)} onDeny={(note) => decide(false, { note })} onLeave={leave} />}
      <Standing questionKey={key} />
    </div>
  );
}

function Choices({ reason, server, hasInput, isBusy, decide, onMode }: {
  reason: PauseReason;
  server: string | null;
  hasInput: boolean;
  isBusy: boolean;
  decide: (accepted: boolean, more?: { remember?: "tool" | "server" }) => void;
  onMode: (mode: "edit" | "note") => void;
}) {
  const isAgain = reason.type === "outcome_unknown";
  const name = shownName(reason.tool_name);
  return (
    <div class={asksCss.choices}>
      {reason.type !== "denial" && (
        <button type="button" class="primary" disabled={isBusy} onClick={() => decide(true)}>{isAgain ? "Run again" : "Allow"}</button>
      )}
      {reason.type === "confirmation" && (
        <button type="button" disabled={isBusy} title={`${name} is not asked about again in this chat`} onClick={() => decide(true, { remember: "tool" })}>
          Always allow
        </button>
      )}
      {reason.type === "confirmation" && server && (
        <button type="button" disabled={isBusy} title={`No tool of ${server} is asked about again in this chat`} onClick={() => decide(true, { remember: "server" })}>
          Always all of {server}
        </button>
      )}
      {hasInput && reason.type !== "browser_context" && reason.type !== "denial" && (
        <button type="button" disabled={isBusy} onClick={() => onMode("edit")}>Edit…</button>
      )}
      <span class={asksCss.spring} />
      <button type="button" disabled={isBusy} onClick={() => onMode("note")}>Deny with a note…</button>
      <button type="button" class="dangerous" disabled={isBusy} onClick={() => decide(false)}>{isAgain ? "Do not run" : "Deny"}</button>
    </div>
  );
}

/** Why not, in words that the model reads. Enter denies, Escape goes back. */
export function Note({ isBusy, onDeny, onLeave, label = "Deny" }: { isBusy: boolean; onDeny: (note: string) => void; onLeave: () => void; label?: string }) {
  const [note, setNote] = useState("");
  const field = useFocused<HTMLInputElement>();
  return (
    <form
      class={asksCss.choices}
      onSubmit={(event) => {
        event.preventDefault();
        onDeny(note.trim());
      }}
    >
      <input
        ref={field}
        aria-label="Note to the model"
        placeholder="Why not? The model reads it."
        maxLength={8_192}
        value={note}
        onInput={(event) => setNote(event.currentTarget.value)}
      />
      <button type="submit" class="dangerous" disabled={isBusy || !note.trim()}>{label}</button>
      <button type="button" onClick={onLeave}>Back</button>
    </form>
  );
}

/** One long text alone is shown as it is; everything else as fields. */
function Input({ input }: { input: JsonObject }) {
  const values = Object.values(input);
  if (values.length === 1 && typeof values[0] === "string") return <LongText isCode text={values[0]} />;
  return <Fields data={input} />;
}

/** Under the buttons: what became of an answer that was given here. */
export function Standing({ questionKey: key }: { questionKey: string }) {
  const standing = standingOf(key);
  if (!standing) return null;
  if (standing.error !== null) return <p class={`${asksCss.questionStanding} ${asksCss.bad}`} role="alert">That was refused: {standing.error}</p>;
  const isOff = connection.value.state === "offline";
  return <p class={asksCss.questionStanding} role="status">{isOff ? "Goes out when the connection is back." : "Sent…"}</p>;
}
