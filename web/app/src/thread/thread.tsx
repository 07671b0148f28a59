/**
 * Shows the conversation: the turns near the window and the growing answer, and keeps the reader's place.
 *
 * Only the newest turns, or the turns around the linked message, are drawn at first. Other turns are added when the
 * reader comes near them, so that a chat of thousands of messages opens as fast as a chat of twenty messages. A screen
 * reader does not announce every token: the list is silent, and one status line says when an answer is complete.
 */

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { activePath, textOf } from "threadcast-client";

import { chat, failure, isReady, isRunning, notify, onEvent, state } from "../state/session.ts";
import { asked } from "./acts.ts";
import { Waiting } from "./answer.tsx";
import { enlarged } from "./enlarged.ts";
import { Lightbox, MessageQuestions } from "./later.tsx";
import { shown as markdown, wantMarkdown } from "./markdown/late.tsx";
import { TurnView } from "./message.tsx";
import { ScrollKeeper, type ScrollPosition } from "./scroll.ts";
import { Failed, Start } from "./start.tsx";
import { turnOf, turnsAfter, type Turn } from "./turns.ts";
import { Icon } from "../ui/icon.tsx";
import { withReason } from "./words.ts";
import css from "./thread.module.css";

/** The number of turns that are drawn at first: more short turns than fit into a tall window. */
const FIRST_TURNS = 16;

/** The number of turns that are added at once: about ten milliseconds of Markdown. */
const MORE_TURNS = 24;

/** The distance to the first or last drawn turn at which more turns are added: about two windows. */
const NEAR_PX = 1_600;

const NO_TURNS: readonly Turn[] = [];

/** The reader's last scroll position in each chat that was opened in this page. */
const scrollPositions = new Map<string, ScrollPosition>();

// Marks for `bench`, which measures the time from a snapshot until it is shown.
onEvent((event) => {
  if (event.type === "snapshot") performance.mark("threadcast:snapshot");
});

/** Errors that do not end the run. Other errors are shown with the message that failed. */
const TOLD_ONCE: ReadonlySet<string> = new Set(["too_large", "unknown_mode"]);

onEvent((event) => {
  if (event.type !== "error" || event.fatal) return;
  if (event.details?.task === "title") notify(withReason(event.message, event.details.reason), { isHarmless: true });
  else if (TOLD_ONCE.has(event.code)) notify(event.message);
});

export function Thread() {
  const id = chat.value?.id ?? null;
  if (id === null) return <section class={css.thread} aria-label="Conversation"><Start /></section>;
  return <Conversation key={id} id={id} />;
}

function Conversation({ id }: { id: string }) {
  wantMarkdown();
  const found = useTurns();
  // A newly opened chat waits for Markdown and is drawn once; a chat that is already shown does not wait.
  const wasShown = useRef(false);
  wasShown.current ||= isReady.value && (markdown.value !== undefined || found.every((turn) => turn.kind === "user"));
  const turns = wasShown.current ? found : NO_TURNS;
  const [drawn, setDrawn] = useState<Drawn>(NEWEST);
  const end = Math.min(drawn.to, turns.length);
  const first = Math.min(drawn.from, Math.max(0, end - FIRST_TURNS));
  const keeper = useRef<ScrollKeeper | null>(null);
  const box = useRef<HTMLElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const top = useRef<HTMLDivElement>(null);
  const bottom = useRef<HTMLDivElement>(null);
  const [, drawAgain] = useState(0);
  const isShown = isReady.value && wasShown.current;

  useLayoutEffect(() => {
    if (!box.current || !content.current) return;
    const kept = (keeper.current = new ScrollKeeper(box.current, content.current));
    drawAgain(1);
    return () => {
      const scrollPosition = kept.scrollPosition;
      if (scrollPosition) scrollPositions.set(id, scrollPosition);
      else scrollPositions.delete(id);
      kept.close();
    };
  }, []);

  // Scrolls to the reader's last place, to the message in the address, or to the end.
  useLayoutEffect(() => {
    if (!isShown) return;
    const linked = askedFor();
    const scrollPosition = linked ? { id: linked, top: LINKED_TOP_PX } : scrollPositions.get(id);
    const at = scrollPosition ? turnOf(turns, scrollPosition.id) : -1;
    if (scrollPosition && at >= 0) {
      setDrawn(around(at, turns.length));
      requestAnimationFrame(() => keeper.current?.toScrollPosition(scrollPosition) && linked && document.getElementById(`m-${linked}`)?.focus({ preventScroll: true }));
    } else keeper.current?.toEnd();
    requestAnimationFrame(() => setTimeout(shown));
  }, [isShown]);

  useEffect(() => {
    const go = () => {
      const linked = askedFor();
      const at = linked ? turnOf(turnsNow.current, linked) : -1;
      if (!linked || at < 0) return;
      setDrawn(around(at, turnsNow.current.length));
      requestAnimationFrame(() => keeper.current?.toScrollPosition({ id: linked, top: LINKED_TOP_PX }));
    };
    addEventListener("hashchange", go);
    return () => removeEventListener("hashchange", go);
  }, []);
  const turnsNow = useRef(turns);
  turnsNow.current = turns;

  useLayoutEffect(() => {
    if (keeper.current) keeper.current.isPartial = end < turns.length;
  }, [end < turns.length]);

  // Adds turns at both ends until the reader is far from the ends.
  useEffect(() => {
    const seen = new IntersectionObserver(
      (entries) => {
        const near = entries.filter((entry) => entry.isIntersecting).map((entry) => entry.target);
        if (!near.length) return;
        setDrawn({
          from: near.includes(top.current as Element) ? Math.max(0, first - MORE_TURNS) : first,
          to: near.includes(bottom.current as Element) ? upTo(end + MORE_TURNS, turns.length) : drawn.to,
        });
      },
      { root: box.current, rootMargin: `${NEAR_PX}px 0px` },
    );
    if (top.current && first > 0) seen.observe(top.current);
    if (bottom.current && end < turns.length) seen.observe(bottom.current);
    return () => seen.disconnect();
  }, [first, end < turns.length && end]);
  const toEnd = () => {
    setDrawn(NEWEST);
    keeper.current?.toEnd();
  };

  // A person who has just sent a message wants to see it.
  const newest = turns.at(-1);
  useLayoutEffect(() => {
    if (newest?.kind === "user" && document.activeElement?.closest("#composer")) toEnd();
  }, [newest?.id]);

  if (failure.value && turns.length === 0) {
    return <section class={css.thread} aria-label="Conversation"><Failed wrong={failure.value} /></section>;
  }
  const openId = state.value.draft?.message.message_id ?? null;
  const isAtEnd = keeper.current?.isAtEnd.value ?? true;
  return (
    <section class={css.thread} ref={box} role="log" aria-label="Conversation" aria-live="off" tabIndex={0}>
      <Announcer />
      <div class={css.turns} ref={content}>
        <div ref={top} />
        {turns.slice(first, end).map((turn, at) => {
          const isLast = first + at === turns.length - 1;
          return <TurnView key={turn.id} turn={turn} isLast={isLast} openId={isLast ? openId : null} />;
        })}
        <div ref={bottom} />
        {isShown && turns.length === 0 && !isRunning.value && <Start />}
        {isRunning.value && newest?.kind !== "answer" && (
          <div class={`${css.message} ${css.assistant}`}><Waiting isOpen={false} /></div>
        )}
      </div>
      {!isAtEnd && (
        <button type="button" class={css.toEnd} aria-label="Jump to newest" title="Jump to newest" onClick={toEnd}>
          <Icon name="open" />
        </button>
      )}
      {enlarged.value && <Lightbox />}
      {asked.value && <MessageQuestions />}
    </section>
  );
}

/** The numbers of the drawn turns. If `to` is beyond the last turn, new turns are drawn too. */
interface Drawn {
  readonly from: number;
  readonly to: number;
}

const NEWEST: Drawn = { from: Infinity, to: Infinity };

function around(at: number, count: number): Drawn {
  return { from: Math.max(0, at - FIRST_TURNS / 2), to: upTo(at + FIRST_TURNS, count) };
}

function upTo(to: number, count: number): number {
  return to < count ? to : Infinity;
}

/** A linked message is placed a little below the edge, so that earlier messages are visible. */
const LINKED_TOP_PX = 24;

function askedFor(): string | null {
  return /^#m-([\w-]{1,128})$/.exec(location.hash)?.[1] ?? null;
}

function useTurns(): readonly Turn[] {
  const before = useRef<readonly Turn[]>([]);
  const now = state.value;
  return useMemo(() => (before.current = turnsAfter(before.current, activePath(now))), [now]);
}

function shown(): void {
  performance.mark("threadcast:shown");
  if (performance.getEntriesByName("threadcast:snapshot").length) {
    performance.measure("threadcast:open", "threadcast:snapshot", "threadcast:shown");
  }
}

/** Enough text to recognise the message. */
const ANNOUNCED_CHARACTERS = 400;

function Announcer() {
  const wasRunning = useRef(false);
  const [said, setSaid] = useState("");
  useEffect(() => {
    const last = activePath(state.peek()).at(-1);
    if (isRunning.value) setSaid("The assistant is answering.");
    else if (wasRunning.current) setSaid(last?.role === "assistant" ? `Assistant: ${textOf(last).slice(0, ANNOUNCED_CHARACTERS)}` : "");
    wasRunning.current = isRunning.value;
  }, [isRunning.value]);
  return (
    <div class="visually-hidden" role="status" aria-live="polite">
      {said}
    </div>
  );
}
