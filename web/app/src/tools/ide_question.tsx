/** Shows a call that waits for an editor. A person without an editor can write the result instead. */

import type { IdeCall } from "threadcast-client";
import { useEffect, useId, useState } from "preact/hooks";

import { command } from "../state/actions.ts";
import { duration } from "../ui/figures.ts";
import { Icon } from "../ui/icon.tsx";
import { shownName } from "./calls.ts";
import { useFocused } from "./focus.ts";
import { summaryLine } from "./format.ts";
import css from "./calls.module.css";
import asksCss from "./questions.module.css";

const TICK_MS = 1_000;

export function IdeQuestion({ call }: { call: IdeCall }) {
  const [isAnswering, setAnswering] = useState(false);
  const heading = useId();
  const now = useNow();
  const isClaimed = call.claimed_by != null && (call.claim_expires_at ?? 0) > now;
  const left = call.deadline_at == null ? null : Math.max(0, call.deadline_at - now);
  return (
    <div class={`${asksCss.question} ${asksCss.client}`} role="group" aria-labelledby={heading} data-call={call.tool_call_id}>
      <header id={heading}>
        <Icon name="developer" />
        <span class={asksCss.oneLine}>
          <b>{shownName(call.tool_name)}</b> <span class={css.quiet}>{summaryLine(call.args)}</span>
        </span>
        <span class={asksCss.questionRule}>{isClaimed ? "an editor is working on it" : "waits for an editor"}{left === null ? "" : `, ${duration(left - (left % TICK_MS))} left`}</span>
        {!isAnswering && <button type="button" onClick={() => setAnswering(true)}>Answer here…</button>}
      </header>
      {isAnswering && <AnswerForm call={call} onLeave={() => setAnswering(false)} />}
    </div>
  );
}

function AnswerForm({ call, onLeave }: { call: IdeCall; onLeave: () => void }) {
  const [text, setText] = useState("");
  const field = useFocused<HTMLTextAreaElement>();
  const [isBusy, setBusy] = useState(false);
  const send = async (tool_failed: boolean) => {
    setBusy(true);
    const isTaken = await command({ type: "ide_tool_result", tool_call_id: call.tool_call_id, content: text, tool_failed });
    if (!isTaken) setBusy(false);
  };
  return (
    <form
      class={asksCss.editor}
      onSubmit={(event) => {
        event.preventDefault();
        void send(false);
      }}
      onKeyDown={(event) => event.key === "Escape" && (event.stopPropagation(), onLeave())}
    >
      <textarea
        ref={field}
        aria-label={`Result of ${call.tool_name}`}
        placeholder="The result, in place of the tool's"
        rows={3}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      <div class={asksCss.choices}>
        <button type="submit" class="primary" disabled={isBusy}>Send as the result</button>
        <button type="button" disabled={isBusy} onClick={() => void send(true)}>It failed</button>
        <button type="button" onClick={onLeave}>Back</button>
      </div>
    </form>
  );
}

function useNow(): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), TICK_MS);
    return () => clearInterval(timer);
  }, []);
  return now;
}
