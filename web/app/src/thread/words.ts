/** Describes tokens, costs and failures in words. Pure. */

import { failureOf, type Failure, type Message, type Usage } from "threadcast-client";

import type { Turn } from "./turns.ts";

/** Adds up the usage of the model calls of one answer. */
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

/**
 * Returns text such as "1,204 tokens · $0.0021". The text counts the written tokens; the tooltip has the other tokens.
 */
export function spent(usage: Usage): string {
  const written = `${usage.completion_tokens.toLocaleString("en")} tokens`;
  return usage.cost_usd == null ? written : `${written} · ${dollars(usage.cost_usd)}`;
}

function dollars(usd: number): string {
  if (usd === 0) return "$0";
  return usd < 0.01 ? `$${usd.toPrecision(2)}` : `$${usd.toFixed(2)}`;
}

/** Returns the reason why an answer was cut short without a failure. */
export function ending(message: Message): string | null {
  if (message.finish_reason === "abort") return "Stopped.";
  return message.finish_reason === "length" ? "Cut off: the answer reached the maximum length." : null;
}

/** Returns the failure of a turn. `error` is the run's error; chats of older servers have only this error. */
export function causeOf({ messages, failed }: Turn, error: string | null): Failure | null {
  if (failed) return failureOf(failed);
  const { finish_reason, status } = messages.at(-1) as Message;
  if (finish_reason === "content_filter") return { code: "content_filter", message: "The model's provider withheld the rest of the answer." };
  if (finish_reason === "error" || status === "interrupted") return { code: "stream_error", message: error ?? "The answer broke off." };
  // The state keeps a run's failure after a switch to another branch, although that branch has no failure.
  const isWhole = finish_reason && finish_reason !== "tool_calls";
  return error === null || isWhole ? null : { code: "", message: error };
}

/** Returns the server's sentence, with the reason of the model's provider if there is one. */
export function withReason(sentence: string, reason: unknown): string {
  return typeof reason === "string" && reason ? `${sentence.replace(/\.$/, "")}: ${reason}` : sentence;
}

const OPERATOR = "the operator of this server";

/** Advice to people about a failure, by its code (PROTOCOL §17). */
const ADVICE: Readonly<Record<string, string>> = {
  aborted: "",
  auth_failed: `Choose another model, or tell ${OPERATOR}: the key for this one must be renewed.`,
  connection: `Try again in a moment. If this happens again, tell ${OPERATOR}.`,
  content_filter: "Use other words, or choose another model.",
  context_overflow: "Begin a new chat, or choose a model with a larger context window.",
  crash_loop: `The same may happen again. Ask for less at once, or tell ${OPERATOR}.`,
  empty_answer: "Use other words, or choose another model.",
  internal: `Try again. If this happens again, tell ${OPERATOR}: the server's log has the details.`,
  interrupted: "The server is available again. Try again.",
  llm_error: `Try again, or choose another model. If this happens again, tell ${OPERATOR}.`,
  max_tool_rounds: "Press Continue to let it work on. The limit is in the settings.",
  poison: `Use other words, or tell ${OPERATOR}.`,
  rate_limited: "Wait a moment and try again, or choose another model.",
  store_full: `The server has no room for new messages. Delete chats that you do not need, or tell ${OPERATOR}.`,
  stream_error: "Try again. The beginning of the answer is kept.",
  timeout: "Try again, ask for less at once, or choose another model.",
  too_large: "Ask for less at once.",
  unavailable: "The server could not reach its store. Try again in a moment.",
};

/** Returns what to do after a failure. Until the provider's `retry_at` is past (`nowMs`), the advice is to wait. */
export function adviceOn({ code, retryAt }: Failure, nowMs: number): string {
  if (retryAt === undefined || retryAt <= nowMs) return ADVICE[code] ?? "Try again.";
  const time = new Date(retryAt).toLocaleTimeString([], { timeStyle: retryAt - nowMs < 3_600_000 ? "medium" : "short" });
  const isToday = new Date(retryAt).toDateString() === new Date(nowMs).toDateString();
  return `It can be asked again at ${time}${isToday ? "" : ` on ${new Date(retryAt).toLocaleDateString()}`}. Until then another model may answer.`;
}

/** Whether another model might succeed. */
const OF_THE_MODEL: ReadonlySet<string> = new Set(
  "auth_failed connection content_filter context_overflow empty_answer llm_error rate_limited timeout".split(" "),
);

export function wantsAnotherModel({ code }: Failure): boolean {
  return OF_THE_MODEL.has(code);
}
