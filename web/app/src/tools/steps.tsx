/**
 * Shows the steps of the latest durable run above its answer: open while the run works, and one line when it has
 * ended.
 */

import { computed } from "@preact/signals";
import type { AgentStep } from "threadcast-client";
import { useState } from "preact/hooks";

import { addressOf } from "../state/route.ts";
import { isRunShown, state } from "../state/session.ts";
import { duration } from "../ui/figures.ts";
import { Icon, type IconName } from "../ui/icon.tsx";
import { clip } from "./format.ts";
import { agentSteps, nodes, path } from "./live.ts";
import { askedIn, nameOf, noteOf, said, signOf, summaryOf, type Sign } from "./step_words.ts";
import { ChatNeeds, follow } from "./subchat.tsx";
import callCss from "./calls.module.css";
import css from "./steps.module.css";

/** The number of the newest steps that are always shown; earlier steps are folded. */
const SHOWN_STEPS = 8;

/** The maximum characters of a shown name: three lines on a phone. The tooltip has the whole name. */
const NAME_MAX_CHARACTERS = 120;

const ICONS: Partial<Record<Sign, IconName>> = { done: "check", failed: "warn", stopped: "close" };

const askedId = computed(() => askedIn(path.value, nodes.value, agentSteps.value));
const runId = computed(() => state.value.runtime.run_id);

/** Shows the steps below the person's message `messageId` if that message began the run of the steps. */
export function Steps({ messageId }: { messageId: string }) {
  const steps = agentSteps.value;
  if (!steps.length || askedId.value !== messageId) return null;
  return <Timeline key={steps[0]!.run_id} steps={steps} isRunOpen={isRunShown.value && runId.value === steps[0]!.run_id} />;
}

function Timeline({ steps, isRunOpen }: { steps: readonly AgentStep[]; isRunOpen: boolean }) {
  const [wanted, setWanted] = useState<boolean | null>(null);
  const [isWhole, setWhole] = useState(false);
  const isOpen = wanted ?? isRunOpen;
  const earlierCount = Math.max(0, steps.length - SHOWN_STEPS);
  const shown = isWhole ? steps : steps.slice(earlierCount);
  const newest = steps.at(-1)!;
  return (
    <section class={css.steps} aria-label="Steps of the agent" data-steps={isRunOpen ? "open" : "ended"}>
      <button type="button" class={css.head} aria-expanded={isOpen} data-unfolds onClick={() => setWanted(!isOpen)}>
        {summaryOf(steps, isRunOpen)}
        <Icon name={isOpen ? "open" : "forward"} />
      </button>
      {isOpen && (
        <>
          {earlierCount > 0 && (
            <button type="button" class={css.earlier} aria-expanded={isWhole} data-unfolds onClick={() => setWhole(!isWhole)}>
              {isWhole ? `Hide ${earlierCount} earlier steps` : `… ${earlierCount} earlier step${earlierCount === 1 ? "" : "s"}`}
            </button>
          )}
          <ol aria-label="Steps">
            {shown.map((step) => (
              <Step key={step.step_id} step={step} sign={signOf(step, isRunOpen)} />
            ))}
          </ol>
        </>
      )}
      <div class="visually-hidden" aria-live="polite">
        {isRunOpen && said(newest, signOf(newest, isRunOpen), Date.now())}
      </div>
    </section>
  );
}

function Step({ step, sign }: { step: AgentStep; sign: Sign }) {
  const name = nameOf(step, sign, Date.now());
  const note = noteOf(step, sign);
  const chatId = step.subchat_id;
  return (
    <li data-step={step.step_id} data-kind={step.kind} data-sign={sign} data-depth={step.step_id.includes(".") ? 1 : 0}>
      <span class={css.sign}>{ICONS[sign] ? <Icon name={ICONS[sign]} /> : <i class={sign === "waiting" ? callCss.pulse : callCss.spin} />}</span>
      <span class={css.line}>
        <span class={css.name} dir="auto" title={name}>
          {chatId ? (
            <>
              <Icon name="fork" /> <a href={addressOf(chatId)} onClick={(event) => follow(event, chatId)}>{clip(name, NAME_MAX_CHARACTERS)}</a>
            </>
          ) : (
            clip(name, NAME_MAX_CHARACTERS)
          )}
        </span>{" "}
        {chatId && (sign === "running" || sign === "waiting") && <ChatNeeds chatId={chatId} />}{" "}
        {note ? <span class={css.note}>{note}</span> : <span class="visually-hidden">{sign}</span>}{" "}
        {step.elapsed_ms != null && <span class={css.time}>{duration(step.elapsed_ms)}</span>}
      </span>
    </li>
  );
}
