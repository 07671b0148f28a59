/** Asks whether a call may run: once, with changed arguments, always, or not at all. */

import type { JsonObject, PauseReason, Questions } from "threadcast-client";
import { useId, useRef, useState } from "preact/hooks";

import { chat, client, connection } from "../state/session.ts";
import { Icon } from "../ui/icon.tsx";
import { mcpServerOf, shownName } from "./calls.ts";
import { answer, decide, isSent, questionKey, standingOf, type DecisionDetails } from "./decide.ts";
import { Editor } from "./editor.tsx";
import { useFocused } from "./focus.ts";
import { BROWSER_PARTS, BrowserParts } from "./browser_parts.tsx";
import { ToolChanged } from "./tool_change.tsx";
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
  const { input: fetched, wrong, fetchInput } = useHiddenInput(reason);
  const input = fetched ?? reason.input ?? {};
  const hasInput = Object.keys(input).length > 0;
  const server = mcpServerOf(tool_name);

  const choose = (accepted: boolean, more?: DecisionDetails) => {
    if (type !== "browser_context" || !accepted) return decide(reason, accepted, more);
    const parts = Object.fromEntries(BROWSER_PARTS.map((part) => [part.key, shared.has(part.key)]));
    answer([key], { type: "browser_context_decision", pending_message_id: tool_call_id, input_hash: reason.input_hash || null, ...parts });
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
        {reason.rule && (reason.once || type !== "confirmation") && <span class={asksCss.questionRule}>{reason.rule}</span>}
      </header>
      {reason.change && <ToolChanged change={reason.change} />}
      {mode === "edit" ? (
        <Editor value={input} submitLabel="Allow with these" isBusy={isSent(key)} onSubmit={(edited) => choose(true, edited ? { edited_input: edited } : {})} onLeave={leave} />
      ) : (
        hasInput && (
          <div class={asksCss.questionInput} tabIndex={0} role="group" aria-label="Arguments">
            <Input input={input} />
          </div>
        )
      )}
      {reason.hides_input && !fetched && (
        <p class={asksCss.questionStanding}>
          The arguments are hidden from the stream. <button type="button" onClick={fetchInput}>Show arguments</button>
          {wrong && <span class={asksCss.bad} role="alert"> {wrong}</span>}
        </p>
      )}
      {reason.approver === "another" && (
        <p class={asksCss.questionStanding}>
          Someone else must allow this call. Ask a person who may approve for you, and tell them the id of this chat:{" "}
          <code>{chat.value?.id}</code>. They can answer with <code>threadcast approve</code>. You can deny the call.
        </p>
      )}
      {type === "browser_context" && mode !== "edit" && <BrowserParts chosen={shared} onChange={setShared} />}
      {mode === "plain" && <Choices reason={reason} server={server} hasInput={hasInput} isBusy={isSent(key)} decide={choose} onMode={setMode} />}
      {mode === "note" && <Note isBusy={isSent(key)} onDeny={(note) => choose(false, { note })} onLeave={leave} />}
      <Standing questionKey={key} />
    </div>
  );
}

/**
 * Fetches the arguments of a question that the stream hides, when the person asks for them. The fetched arguments are
 * kept only in the card. A question with other arguments has another key, and therefore another card.
 */
function useHiddenInput(reason: PauseReason) {
  const [input, setInput] = useState<JsonObject | null>(null);
  const [wrong, setWrong] = useState("");
  const fetchInput = async () => {
    const id = chat.peek()?.id;
    if (!id) return;
    setWrong("");
    try {
      const { questions } = await client.get<Questions>(`/v1/chats/${id}/questions`);
      const same = questions.find((asked) => asked.tool_call_id === reason.tool_call_id && asked.input_hash === reason.input_hash);
      if (same) setInput(same.input ?? {});
      else setWrong("This question is no longer open.");
    } catch (failure) {
      setWrong(failure instanceof Error ? failure.message : "The arguments could not be loaded.");
    }
  };
  return { input, wrong, fetchInput: () => void fetchInput() };
}

function Choices({ reason, server, hasInput, isBusy, decide, onMode }: {
  reason: PauseReason;
  server: string | null;
  hasInput: boolean;
  isBusy: boolean;
  decide: (accepted: boolean, more?: DecisionDetails) => void;
  onMode: (mode: "edit" | "note") => void;
}) {
  const isAgain = reason.type === "outcome_unknown";
  const name = shownName(reason.tool_name);
  return (
    <div class={asksCss.choices}>
      {reason.type !== "denial" && reason.approver !== "another" && (
        <button type="button" class="primary" disabled={isBusy} onClick={() => decide(true)}>{isAgain ? "Run again" : "Allow"}</button>
      )}
      {reason.type === "confirmation" && !reason.once && (
        <button type="button" disabled={isBusy} title={`${name} will run without asking in this chat`} onClick={() => decide(true, { remember: "tool" })}>
          Always allow
        </button>
      )}
      {reason.type === "confirmation" && server && !reason.once && (
        <button type="button" disabled={isBusy} title={`The present tools of ${server} will run without asking in this chat`} onClick={() => decide(true, { remember: "server" })}>
          Always all of {server}
        </button>
      )}
      {hasInput && reason.type !== "browser_context" && reason.type !== "denial" && reason.approver !== "another" && (
        <button type="button" disabled={isBusy} onClick={() => onMode("edit")}>Edit…</button>
      )}
      <span class={asksCss.spring} />
      <button type="button" disabled={isBusy} onClick={() => onMode("note")}>Deny with a note…</button>
      <button type="button" class="dangerous" disabled={isBusy} onClick={() => decide(false)}>{isAgain ? "Do not run" : "Deny"}</button>
    </div>
  );
}

/** A field for the reason of a refusal, which the model reads. Enter denies the call, Escape closes the field. */
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
        placeholder="Why not? The model reads this note."
        maxLength={8_192}
        value={note}
        onInput={(event) => setNote(event.currentTarget.value)}
      />
      <button type="submit" class="dangerous" disabled={isBusy || !note.trim()}>{label}</button>
      <button type="button" onClick={onLeave}>Back</button>
    </form>
  );
}

/** Shows a single long text as text, and other arguments as fields. */
function Input({ input }: { input: JsonObject }) {
  const values = Object.values(input);
  if (values.length === 1 && typeof values[0] === "string") return <LongText isCode text={values[0]} />;
  return <Fields data={input} />;
}

/** Shows below the buttons whether the answer was sent or refused. */
export function Standing({ questionKey: key }: { questionKey: string }) {
  const standing = standingOf(key);
  if (!standing) return null;
  if (standing.error !== null) return <p class={`${asksCss.questionStanding} ${asksCss.bad}`} role="alert">That was refused: {standing.error}</p>;
  const isOff = connection.value.state === "offline";
  return <p class={asksCss.questionStanding} role="status">{isOff ? "It will be sent when you are connected." : "Sent…"}</p>;
}
