/**
 * Shows the events of the open chat as they arrive. Lines are drawn in blocks and only once, and blocks out of sight
 * cost nothing (`content-visibility`). The list follows its end until the reader scrolls up.
 */

import { useLayoutEffect, useRef, useState } from "preact/hooks";

import { copy } from "../ui/clipboard.ts";
import { size } from "../ui/figures.ts";
import { IconButton } from "../ui/icon.tsx";
import { memo } from "../ui/memo.ts";
import { bytesOf, clock, isWanted, summary, typesOf, type Filter } from "./lines.ts";
import type { Line, Log } from "./log.ts";
import { log } from "./record.ts";
import css from "./contents.module.css";
import drawerCss from "./drawer.module.css";

export function EventLog() {
  const [filter, setFilter] = useState<Filter>("all");
  const [paused, setPaused] = useState<Log | null>(null);
  const box = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  const shown = paused ?? log.value;
  useLayoutEffect(() => {
    if (isAtEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [shown, filter]);
  const types = typesOf(shown);
  // The log has no lines of the chosen type: no such event has arrived yet, or its lines were dropped.
  const isUnlisted = filter !== "all" && filter !== "no_deltas" && !types.some(([type]) => type === filter);
  const wanted = () => shown.blocks.flat().filter((line) => isWanted(line, filter));
  return (
    <>
      <div class={css.tools}>
        <select aria-label="Show" value={filter} onChange={(event) => setFilter(event.currentTarget.value)}>
          <option value="all">all events</option>
          <option value="no_deltas">all except pieces of text</option>
          {types.map(([type, count]) => <option key={type} value={type}>{`${type} (${count})`}</option>)}
          {isUnlisted && <option value={filter}>{filter}</option>}
        </select>
        <span class={css.count}>{paused ? `paused, ${log.value.count - paused.count} more` : `${shown.count} lines`}</span>
        <IconButton
          name={paused ? "play" : "stop"}
          label={paused ? "Continue" : "Pause the log"}
          pressed={paused !== null}
          onClick={() => setPaused(paused ? null : log.value)}
        />
        <IconButton name="copy" label="Copy these lines" onClick={() => void copy(wanted().map(asJson).join("\n"))} />
      </div>
      <div
        class={css.lines}
        role="log"
        aria-label="Events"
        aria-live="off"
        tabIndex={0}
        ref={box}
        onScroll={({ currentTarget: at }) => (isAtEnd.current = at.scrollHeight - at.scrollTop - at.clientHeight < 24)}
      >
        {shown.blocks.map((lines) => <Block key={lines[0]?.number} lines={lines} filter={filter} />)}
        {shown.count === 0 && <p class={drawerCss.hint}>Events will appear here.</p>}
      </div>
    </>
  );
}

const Block = memo(function Block({ lines, filter }: { lines: readonly Line[]; filter: Filter }) {
  return (
    <div class={css.block}>
      {lines
        .filter((line) => isWanted(line, filter))
        .map((line) => (line.kind === "note" ? <Note key={line.number} line={line} /> : <Event key={line.number} line={line} />))}
    </div>
  );
});

function Note({ line }: { line: Line }) {
  return (
    <p class={`${css.line} ${css.note}`}>
      <time>{clock(line.at)}</time>
      {line.text}
    </p>
  );
}

function Event({ line }: { line: Line }) {
  const [isOpen, setOpen] = useState(false);
  const { body } = line;
  return (
    <details class={css.line} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <time>{clock(line.at)}</time>
        <span class={css.position}>{line.position ?? "–"}</span>
        <b>{line.type}</b>
        <span class={css.size}>{body ? size(bytesOf(body)) : ""}</span>
        <span class={css.says}>{body ? summary(body) : "no longer kept"}</span>
      </summary>
      {isOpen && body && (
        <div class={css.whole}>
          <IconButton name="copy" label="Copy this event" onClick={() => void copy(JSON.stringify(body, null, 2))} />
          <pre tabIndex={0}>{JSON.stringify(body, null, 2)}</pre>
        </div>
      )}
    </details>
  );
}

function asJson({ at, kind, position, text, body }: Line): string {
  return JSON.stringify(kind === "note" ? { at, note: text } : { at, position, event: body });
}
