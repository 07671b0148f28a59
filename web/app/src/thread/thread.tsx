/**
 * The conversation: the turns near the window, the answer as it grows, and where the reader is.
 *
 * Only the newest turns are drawn at first, or those around the place that is looked for; others are added as the reader
 * comes near them, so that a chat of thousands of messages opens as fast as one of twenty. A screen reader is not read every token: the list itself is
 * silent, and one line says when an answer is there.
 */

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { activePath, textOf } from "threadcast-client";

import { chat, failure, isReady, isRunning, notify, onEvent, state } from "../state/session.ts";
import { asked } from "./acts.ts";
import { Waiting } from "./answer.tsx";
import { enlarged } from "./enlarged.ts";
import { Lightbox, MessageQuestions } from "./later.tsx";
import { room, wantMarkdown } from "./markdown/late.tsx";
import { TurnView } from "./message.tsx";
import { ScrollKeeper, type Place } from "./scroll.ts";
import { Failed, Start } from "./start.tsx";
import { turnOf, turnsAfter, type Turn } from "./turns.ts";
import { Icon } from "../ui/icon.tsx";
import css from "./thread.module.css";

/** Turns drawn at first: more than a tall window holds of short ones. */
const FIRST_TURNS = 16;

/** Turns added at once: about ten milliseconds of Markdown. */
const MORE_TURNS = 24;

/** So near an edge of what is drawn more is added there; about two windows. */
const NEAR_PX = 1_600;

const NO_TURNS: readonly Turn[] = [];

/** Where readers left the chats of this page. */
const places = new Map<string, Place>();

// What `bench` measures: from a snapshot until it is seen.
onEvent((event) => {
  if (event.type === "snapshot") performance.mark("threadcast:snapshot");
});

/** Errors that do not end the run. Other errors are shown with the message that they happened to. */
const TOLD_ONCE: ReadonlySet<string> = new Set(["too_large", "unknown_mode"]);

onEvent((event) => {
  if (event.type === "error" && !event.fatal && TOLD_ONCE.has(event.code)) notify(event.message);
});

export function Thread() {
  const id = chat.value?.id ?? null;
  if (id === null) return <section class={css.thread} aria-label="Conversation"><Start /></section>;
  return <Conversation key={id} id={id} />;
}

function Conversation({ id }: { id: string }) {
  wantMarkdown();
  const found = useTurns();
  // A chat that is just opened waits for Markdown and is drawn once; a chat on the screen goes on without it.
  const wasShown = useRef(false);
  wasShown.current ||= isReady.value && (room.value !== undefined || found.every((turn) => turn.kind === "user"));
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
      const place = kept.place;
      if (place) places.set(id, place);
      else places.delete(id);
      kept.close();
    };
  }, []);

  // The place that was left, the message that the address names, or the end.
  useLayoutEffect(() => {
    if (!isShown) return;
    const linked = askedFor();
    const place = linked ? { id: linked, top: LINKED_TOP_PX } : places.get(id);
    const at = place ? turnOf(turns, place.id) : -1;
    if (place && at >= 0) {
      setDrawn(around(at, turns.length));
      requestAnimationFrame(() => keeper.current?.toPlace(place) && linked && document.getElementById(`m-${linked}`)?.focus({ preventScroll: true }));
    } else keeper.current?.toEnd();
    requestAnimationFrame(() => setTimeout(shown));
  }, [isShown]);

  useEffect(() => {
    const go = () => {
      const linked = askedFor();
      const at = linked ? turnOf(turnsNow.current, linked) : -1;
      if (!linked || at < 0) return;
      setDrawn(around(at, turnsNow.current.length));
      requestAnimationFrame(() => keeper.current?.toPlace({ id: linked, top: LINKED_TOP_PX }));
    };
    addEventListener("hashchange", go);
    return () => removeEventListener("hashchange", go);
  }, []);
  const turnsNow = useRef(turns);
  turnsNow.current = turns;

  useLayoutEffect(() => {
    if (keeper.current) keeper.current.isPartial = end < turns.length;
  }, [end < turns.length]);

  // More at either end, until the reader is far from it.
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

  // Who has just sent something wants to see it.
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

/** The turns that are drawn, by their numbers; `to` beyond the last: also those that come. */
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

/** A linked message stands a little below the edge, so that one sees that there is more before it. */
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

/** Enough to know what it is about; the rest is read in the message. */
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
