/** Figures and reasons as people read them. Pure. */

import { failureOf, type Failure, type Message, type Usage } from "threadcast-client";

import type { Turn } from "./turns.ts";

/** What the calls of one answer took together. */
export function usageOf(messages: readonly Message[]): Usage | null {
  const all = messages.flatMap((message) => message.usage ?? []);
  if (!all.length) return null;
  const sum = (pick: (usage: Usage) => number | null | undefined) => all.reduce((total, usage) => total + (pick(usage) ?? 0), 0);
  const isPriced = all.some((usage) => usage.cost_usd != null);
  return {
    prompt_tokens: sum((usage) => usage.prompt_tokens),
    completion_tokens: sum((usage) => usage.completion_tokens),
    total_tokens: sum((usage) => usage.total_tokens),
    ...(isPriced && { cost_usd: sum((usage) => usage.cost_usd) }),
  };
}

/** "1,204 tokens · $0.0021": what was written, since that is what is on the screen; the rest is in the tip. */
export function spent(usage: Usage): string {
  const written = `${usage.completion_tokens.toLocaleString("en")} tokens`;
  return usage.cost_usd == null ? written : `${written} · ${dollars(usage.cost_usd)}`;
}

function dollars(usd: number): string {
  if (usd === 0) return "$0";
  return usd < 0.01 ? `$${usd.toPrecision(2)}` : `$${usd.toFixed(2)}`;
}

/** Says why an answer was cut short although nothing went wrong. */
export function ending(message: Message): string | null {
  if (message.finish_reason === "abort") return "Stopped.";
  return message.finish_reason === "length" ? "Cut off: the answer reached its longest length." : null;
}

/** The failure of this turn. `error` is the run's error, which is all that chats of older servers have. */
export function causeOf({ messages, failed }: Turn, error: string | null): Failure | null {
  if (failed) return failureOf(failed);
  const { finish_reason, status } = messages.at(-1) as Message;
  if (finish_reason === "content_filter") return { code: "content_filter", message: "The model's provider held the rest of the answer back." };
  if (finish_reason === "error" || status === "interrupted") return { code: "stream_error", message: error ?? "The answer broke off." };
  // A run's failure outlives the way to another branch, where it has not happened.
  const isWhole = finish_reason && finish_reason !== "tool_calls";
  return error === null || isWhole ? null : { code: "", message: error };
}

const OPERATOR = "whoever runs this server";

/** What people can do about a failure, by its code (PROTOCOL §17). */
const ADVICE: Readonly<Record<string, string>> = {
  aborted: "",
  auth_failed: `Choose another model, or tell ${OPERATOR}: the key for this one must be renewed.`,
  connection: `Try again in a moment. If it stays so, tell ${OPERATOR}.`,
  content_filter: "Ask in other words, or choose another model.",
  context_overflow: "Begin a new chat, or choose a model with a larger window.",
  crash_loop: `The same may happen again. Ask for less at once, or tell ${OPERATOR}.`,
  empty_answer: "Ask in other words, or choose another model.",
  internal: `Try again. If it stays so, tell ${OPERATOR}: the server's log says more.`,
  interrupted: "Try again: the server is back.",
  llm_error: `Try again, or choose another model. If it stays so, tell ${OPERATOR}.`,
  max_tool_rounds: "Continue lets it work on. The settings hold the limit.",
  poison: `Ask in other words, or tell ${OPERATOR}.`,
  rate_limited: "Wait a moment and try again, or choose another model.",
  stream_error: "Try again. What came of the answer is kept.",
  timeout: "Try again, ask for less at once, or choose another model.",
  too_large: "Ask for less at once.",
  unavailable: "The server could not reach its store. Try again in a moment.",
};

/** What to do after a failure. Until the provider's `retry_at` is past (`nowMs`), the advice is to wait. */
export function adviceOn({ code, retryAt }: Failure, nowMs: number): string {
  if (retryAt === undefined || retryAt <= nowMs) return ADVICE[code] ?? "Try again.";
  const time = new Date(retryAt).toLocaleTimeString([], { timeStyle: retryAt - nowMs < 3_600_000 ? "medium" : "short" });
  const isToday = new Date(retryAt).toDateString() === new Date(nowMs).toDateString();
  return `It may be asked again at ${time}${isToday ? "" : ` on ${new Date(retryAt).toLocaleDateString()}`}. Until then another model may answer.`;
}

/** Whether another model could do better. */
const OF_THE_MODEL: ReadonlySet<string> = new Set(
  "auth_failed connection content_filter context_overflow empty_answer llm_error rate_limited timeout".split(" "),
);

export function wantsAnotherModel({ code }: Failure): boolean {
  return OF_THE_MODEL.has(code);
}
