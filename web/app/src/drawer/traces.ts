/** Describes the cost of a run in words. Pure. */

import type { RunTrace, Usage } from "threadcast-client";

/** Returns text such as "in 1.4 s"; "" while the run continues. */
export function lasted(startedAt: number | null, endedAt: number | null): string {
  return startedAt === null || endedAt === null ? "" : `in ${((endedAt - startedAt) / 1000).toFixed(1)} s`;
}

/** Returns text such as "120 + 40 tokens (100 from the cache), $0.0012". */
export function spent(usage: Usage): string {
  const cached = usage.cache_read_input_tokens ? ` (${usage.cache_read_input_tokens} from the cache)` : "";
  const cost = usage.cost_usd ? `, $${usage.cost_usd.toPrecision(2)}` : "";
  return `${usage.prompt_tokens} + ${usage.completion_tokens} tokens${cached}${cost}`;
}

/** Adds up all rounds and summaries. */
export function totals(trace: RunTrace): string {
  const all = [...trace.rounds, ...trace.summaries].flatMap(({ usage }) => (usage ? [usage] : []));
  if (!all.length) return "no model reported its usage";
  const sum = (pick: (usage: Usage) => number | null | undefined) => all.reduce((total, usage) => total + (pick(usage) ?? 0), 0);
  return spent({
    prompt_tokens: sum((usage) => usage.prompt_tokens),
    completion_tokens: sum((usage) => usage.completion_tokens),
    total_tokens: sum((usage) => usage.total_tokens),
    cache_read_input_tokens: sum((usage) => usage.cache_read_input_tokens),
    cost_usd: sum((usage) => usage.cost_usd),
  });
}
