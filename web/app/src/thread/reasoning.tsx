/** What a model thought before it spoke: open while it thinks, folded as soon as it says something. */

import { useRef } from "preact/hooks";

import { duration } from "../ui/figures.ts";
import { Markdown } from "./markdown/markdown.tsx";
import css from "./thread.module.css";

/** How long thinking took, of messages that were watched; the wire does not tell. */
const tookMs = new Map<string, number>();

export function Reasoning({ id, text, isLive }: { id: string; text: string; isLive: boolean }) {
  const begunAt = useRef(isLive ? performance.now() : null);
  if (!isLive && begunAt.current !== null) {
    tookMs.set(id, performance.now() - begunAt.current);
    begunAt.current = null;
  }
  const took = tookMs.get(id);
  return (
    <details class={css.reasoning} open={isLive}>
      <summary class={isLive ? css.live : undefined}>{isLive ? "Thinking…" : took ? `Thought for ${duration(took)}` : "Thoughts"}</summary>
      <Markdown text={text} isGrowing={isLive} />
    </details>
  );
}
