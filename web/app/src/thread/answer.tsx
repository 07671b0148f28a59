/** Shows an answer: its rounds with their tool calls, why it ended, its citations, and its toolbar. */

import { reasoningMsOf, textOf, type Message } from "threadcast-client";

import { assistantName } from "../state/chosen.ts";
import { isRunning, state } from "../state/session.ts";
import { PayloadsOf, ToolCalls } from "../tools/index.tsx";
import { goOn } from "./acts.ts";
import { sourcesOf } from "./citations.ts";
import { failureIn, FailureOf } from "./failure.tsx";
import { Markdown } from "./markdown/late.tsx";
import { memo } from "../ui/memo.ts";
import { timeOf, type TurnProps } from "./message.tsx";
import { Parts } from "./later.tsx";
import { Reasoning } from "./reasoning.tsx";
import { ScriptNote } from "./scripted.tsx";
import { AnswerTools, Branches } from "./toolbar.tsx";
import { ending, spent, usageOf } from "./words.ts";
import css from "./thread.module.css";

export function Answer({ turn, isLast, openId }: TurnProps) {
  const last = turn.messages.at(-1) as Message;
  // Only the last answer can be unfinished, so only the last answer reads the run's state.
  const isBusy = isLast && isRunning.value;
  const failure = isBusy ? null : failureIn(turn, isLast);
  return (
    <article class={`${css.message} ${css.assistant}`} id={`m-${turn.id}`} aria-label={assistantName.value} aria-busy={isBusy} tabIndex={-1}>
      {turn.messages.map((message, at) => (
        <Round key={message.message_id} message={message} isFirst={at === 0} isOpen={message.message_id === openId} speaker={newSpeaker(turn.messages, at)} />
      ))}
      {isBusy ? <Waiting isOpen={openId === last.message_id && (textOf(last) !== "" || !!last.reasoning_content)} /> : failure ? <FailureOf turn={turn} isLast={isLast} failure={failure} /> : <End last={last} isLast={isLast} />}
      <div class={css.under}>
        {/* First, because the rest is hidden until the pointer is over it. */}
        {!isBusy && last.model && <ScriptNote model={last.model} />}
        {!isBusy && <AnswerTools messages={turn.messages} canContinue={isLast} hasFailed={failure !== null} />}
        {!isBusy && <Facts messages={turn.messages} />}
      </div>
    </article>
  );
}

/**
 * Returns the name of the agent that speaks in the message; "" if the speaker is that of the previous message or, in
 * the first message, the assistant.
 */
function newSpeaker(messages: readonly Message[], at: number): string {
  const speakerOf = (message: Message | undefined) => (typeof message?.extra?.speaker === "string" ? message.extra.speaker : assistantName.value);
  const speaker = speakerOf(messages[at]);
  return speaker === speakerOf(messages[at - 1]) ? "" : speaker;
}

const Round = memo(function Round({ message, isFirst, isOpen, speaker }: { message: Message; isFirst: boolean; isOpen: boolean; speaker: string }) {
  const text = textOf(message);
  const id = message.message_id;
  const place = { class: css.round, id: isFirst ? undefined : `m-${id}` };
  if (message.kind === "refused") {
    return (
      <details {...place}>
        <summary class={css.refused}>An answer in the wrong language was refused, and the model was asked again</summary>
        {text && <Markdown text={text} isGrowing={false} />}
      </details>
    );
  }
  return (
    <div {...place}>
      {!isFirst && <Branches message={message} />}
      {speaker && <p class={css.speaker}>{speaker}</p>}
      {message.reasoning_content && <Reasoning text={message.reasoning_content} isLive={isOpen && !text} ms={reasoningMsOf(message)} />}
      {text && <Markdown text={text} isGrowing={isOpen} />}
      {typeof message.content !== "string" && <Parts parts={message.content} />}
      <ToolCalls message={message} />
      <PayloadsOf message={message} />
      {!!message.citations?.length && <Sources message={message} />}
      {message.warning && <p class={css.warning}>{message.warning}</p>}
    </div>
  );
});

function Sources({ message }: { message: Message }) {
  const sources = sourcesOf(message.citations ?? []);
  if (!sources.length) return null;
  return (
    <ol class={css.sources} aria-label="Sources">
      {sources.map(({ title, url, quote }, at) => (
        <li key={at} title={quote} dir="auto">
          {url ? (
            <a href={url} target="_blank" rel="noopener noreferrer nofollow">
              {title}
            </a>
          ) : (
            title
          )}
        </li>
      ))}
    </ol>
  );
}

/** Shows dots until text arrives, and the server's status text. */
export function Waiting({ isOpen }: { isOpen: boolean }) {
  const { state: standing, status_text } = state.value.runtime;
  if (isOpen || standing === "paused" || standing === "waiting_ide") return null;
  return (
    <p class={css.waiting}>
      <span class={css.dots} aria-hidden="true">
        <i />
        <i />
        <i />
      </span>
      {status_text || <span class="visually-hidden">The assistant is working</span>}
    </p>
  );
}

/** Shows why an answer was cut short, with a button that continues it. */
function End({ last, isLast }: { last: Message; isLast: boolean }) {
  const said = ending(last);
  if (!said) return null;
  return (
    <p class={css.ending}>
      {said}
      {isLast && (
        <button type="button" onClick={() => void goOn(last.message_id)}>
          Continue
        </button>
      )}
    </p>
  );
}

/** Shows the model, the time and the tokens of an answer, and when it was written. */
function Facts({ messages }: { messages: readonly Message[] }) {
  const last = messages.at(-1);
  const usage = usageOf(messages);
  if (!last || (!last.model && !usage)) return null;
  const tokens = usage && `${usage.prompt_tokens.toLocaleString("en")} tokens read, ${usage.completion_tokens.toLocaleString("en")} written`;
  return (
    <p class={css.facts} title={[timeOf(last.created_at), tokens].filter(Boolean).join("\n")}>
      {[last.model, usage && spent(usage)].filter(Boolean).join(" · ")}
    </p>
  );
}
