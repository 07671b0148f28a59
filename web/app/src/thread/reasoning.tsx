/** Shows a model's reasoning: open while the model reasons, folded as soon as it answers. */

import { duration } from "../ui/figures.ts";
import { Markdown } from "./markdown/late.tsx";
import css from "./thread.module.css";

/** `ms` is the time of reasoning that the server measured; null for chats of older servers and imported chats. */
export function Reasoning({ text, isLive, ms }: { text: string; isLive: boolean; ms: number | null }) {
  const said = isLive ? "Thinking" : ms === null ? "Thoughts" : `Thought for ${duration(ms)}`;
  return (
    <details class={css.reasoning} open={isLive}>
      <summary class={isLive ? css.live : undefined}>
        {said}
        {isLive && (ms === null || ms < 1_000 ? "…" : ` for ${duration(Math.floor(ms / 1_000) * 1_000)}…`)}
      </summary>
      <Markdown text={text} isGrowing={isLive} />
    </details>
  );
}
