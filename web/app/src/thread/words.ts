/** Figures and reasons as people read them. Pure. */

import type { Message, Usage } from "threadcast-client";

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

/** Why an answer ended, when it did not end by itself. */
export function ending(message: Message): { text: string; isBad: boolean } | null {
  switch (message.finish_reason) {
    case "abort":
      return { text: "Stopped.", isBad: false };
    case "length":
      return { text: "Cut off: the answer reached its longest length.", isBad: false };
    case "content_filter":
      return { text: "Withheld by the model's provider.", isBad: true };
    case "error":
      return { text: "The answer broke off.", isBad: true };
    default:
      return message.status === "interrupted" ? { text: "The answer was interrupted.", isBad: true } : null;
  }
}
