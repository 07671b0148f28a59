/** Shows a turn: a person's message, a whole answer, or a message of another role. */

import { useState } from "preact/hooks";
import { reasoningMsOf, textOf } from "threadcast-client";

import { Answer } from "./answer.tsx";
import { edit } from "./acts.ts";
import { labelOf } from "../state/contexts.ts";
import { isRunning } from "../state/session.ts";
import { failureIn, FailureOf, WaysBack } from "./failure.tsx";
import { memo } from "../ui/memo.ts";
import { Editor, Parts } from "./later.tsx";
import { Reasoning } from "./reasoning.tsx";
import { agentSteps } from "../tools/live.ts";
import { Steps } from "../tools/later.tsx";
import { UserTools } from "./toolbar.tsx";
import type { Turn } from "./turns.ts";
import css from "./thread.module.css";

/** `openId` is the id of the unfinished message if it is in this turn. */
export interface TurnProps {
  turn: Turn;
  isLast: boolean;
  openId: string | null;
}

export const TurnView = memo(function TurnView(props: TurnProps) {
  if (props.turn.kind === "answer") return <Answer {...props} />;
  return <Unanswered {...props} />;
});

/**
 * Shows a message of a person or a program, and why it got no answer. For a server's report of a failed command, only
 * the failure is shown.
 */
function Unanswered({ turn, isLast }: TurnProps) {
  const failure = isLast && isRunning.value ? null : failureIn(turn, isLast);
  const isReport = failure !== null && turn.failed?.role === "error";
  return (
    <>
      {turn.kind === "user" ? <UserMessage turn={turn} hasFailed={failure !== null} /> : !isReport && <Note turn={turn} />}
      {turn.kind === "user" && agentSteps.value.length > 0 && <Steps messageId={turn.id} />}
      {failure ? <FailureOf turn={turn} isLast={isLast} failure={failure} /> : isLast && !isRunning.value && <p class={css.wayBack}><WaysBack /></p>}
    </>
  );
}

function UserMessage({ turn, hasFailed }: { turn: Turn; hasFailed: boolean }) {
  const [isEdited, setEdited] = useState(false);
  const message = turn.messages[0];
  if (!message) return null;
  const text = textOf(message);
  const files = (message.context_files ?? []).map((file) => String(file.file_name ?? file.name ?? file.path ?? "file"));
  return (
    <article class={`${css.message} ${css.user}`} id={`m-${turn.id}`} aria-label="You" tabIndex={-1} title={timeOf(message.created_at)}>
      {isEdited ? (
        <Editor text={text} onCancel={() => setEdited(false)} onSave={(said, when) => edit(message, said, when).then(() => setEdited(false))} />
      ) : (
        <>
          {typeof message.content !== "string" && <Parts parts={message.content} />}
          {text && <div class={css.bubble} dir="auto">{text}</div>}
          {message.context && Object.keys(message.context).length > 0 && (
            <p class={css.contextFiles} title={JSON.stringify(message.context, null, 2)} dir="auto">Page: {labelOf(message.context)}</p>
          )}
          {files.length > 0 && <p class={css.contextFiles}>{files.join(", ")}</p>}
          <UserTools message={message} hasFailed={hasFailed} onEdit={() => setEdited(true)} />
        </>
      )}
    </article>
  );
}

/** Shows messages of other roles, such as those of a system, an editor or an import. */
function Note({ turn }: { turn: Turn }) {
  const message = turn.messages[0];
  if (!message) return null;
  const text = textOf(message);
  const name = message.role.replaceAll("_", " ");
  return (
    <article class={`${css.message} ${css.note} ${message.role === "error" ? css.bad : ""}`} id={`m-${turn.id}`} aria-label={name} tabIndex={-1} title={timeOf(message.created_at)}>
      <details open={text.length < 200}>
        <summary>{name}</summary>
        <div class={css.said} dir="auto">{text}</div>
      </details>
      {message.reasoning_content && <Reasoning text={message.reasoning_content} isLive={false} ms={reasoningMsOf(message)} />}
    </article>
  );
}

export function timeOf(ms: number | null | undefined): string | undefined {
  return ms == null ? undefined : new Date(ms).toLocaleString();
}
