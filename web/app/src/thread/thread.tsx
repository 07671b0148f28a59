/**
 * The conversation: the turns near the window, the answer as it grows, and where the reader is.
 *
 * Only the newest turns are drawn at first; older ones are put in front as the reader comes near them, so that a chat of
 * thousands of messages opens as fast as one of twenty. A screen reader is not read every token: the list itself is
 * silent, and one line says when an answer is there.
 */

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { activePath, textOf } from "threadcast-client";

import { chat, failure, isReady, isRunning, onEvent, state } from "../state/session.ts";
import { regenerate } from "./acts.ts";
import { Waiting } from "./answer.tsx";
import { Lightbox } from "./lightbox.tsx";
import { TurnView } from "./message.tsx";
import { MessageQuestions } from "./questions.tsx";
import { ScrollKeeper, type Place } from "./scroll.ts";
import { Failed, Start } from "./start.tsx";
import { turnOf, turnsAfter, type Turn } from "./turns.ts";
import { Icon } from "../ui/icon.tsx";
import "./markdown/markdown.css";
import "./thread.css";

/** Turns drawn at first: more than a tall window holds of short ones. */
const FIRST_TURNS = 16;

/** Turns put in front at once: about ten milliseconds of Markdown. */
const MORE_TURNS = 24;

/** So near the top of what is drawn more is put in front; about two windows. */
const NEAR_PX = 1_600;

/** Where readers left the chats of this page. */
const places = new Map<string, Place>();

// What `bench` measures: from a snapshot until it is seen.
onEvent((event) => {
  if (event.type === "snapshot") performance.mark("threadcast:snapshot");
});

export function Thread() {
  const id = chat.value?.id ?? null;
  if (id === null) return <section class="thread" aria-label="Conversation"><Start /></section>;
  return <Conversation key={id} id={id} />;
}

function Conversation({ id }: { id: string }) {
  const turns = useTurns();
  const [from, setFrom] = useState<number | null>(null);
  const first = Math.min(from ?? Infinity, Math.max(0, turns.length - FIRST_TURNS));
  const keeper = useRef<ScrollKeeper | null>(null);
  const box = useRef<HTMLElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const top = useRef<HTMLDivElement>(null);
  const [, drawAgain] = useState(0);
  const isShown = isReady.value;

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
    const asked = askedFor();
    const place = asked ? { id: asked, top: LINKED_TOP_PX } : places.get(id);
    const at = place ? turnOf(turns, place.id) : -1;
    if (place && at >= 0) {
      setFrom(Math.max(0, Math.min(first, at - 4)));
      requestAnimationFrame(() => keeper.current?.toPlace(place) && asked && document.getElementById(`m-${asked}`)?.focus({ preventScroll: true }));
    } else keeper.current?.toEnd();
    requestAnimationFrame(() => setTimeout(shown));
  }, [isShown]);

  useEffect(() => {
    const go = () => {
      const asked = askedFor();
      const at = asked ? turnOf(turnsNow.current, asked) : -1;
      if (!asked || at < 0) return;
      setFrom((now) => Math.min(now ?? Infinity, Math.max(0, at - 4)));
      requestAnimationFrame(() => keeper.current?.toPlace({ id: asked, top: LINKED_TOP_PX }));
    };
    addEventListener("hashchange", go);
    return () => removeEventListener("hashchange", go);
  }, []);
  const turnsNow = useRef(turns);
  turnsNow.current = turns;

  // More in front, until the reader is far from the top.
  useEffect(() => {
    if (!top.current || first === 0) return;
    const seen = new IntersectionObserver(
      (entries) => {
        if (entries.some((entry) => entry.isIntersecting)) setFrom(Math.max(0, first - MORE_TURNS));
      },
      { root: box.current, rootMargin: `${NEAR_PX}px 0px 0px` },
    );
    seen.observe(top.current);
    return () => seen.disconnect();
  }, [first === 0, first]);

  // Who has just sent something wants to see it.
  const newest = turns.at(-1);
  useLayoutEffect(() => {
    if (newest?.kind === "user" && document.activeElement?.closest(".composer")) keeper.current?.toEnd();
  }, [newest?.id]);

  if (failure.value && turns.length === 0) {
    return <section class="thread" aria-label="Conversation"><Failed wrong={failure.value} /></section>;
  }
  const openId = state.value.draft?.message.message_id ?? null;
  const { error, state: standing } = state.value.runtime;
  const isAtEnd = keeper.current?.isAtEnd.value ?? true;
  return (
    <section class="thread" ref={box} role="log" aria-label="Conversation" aria-live="off" tabIndex={0} onKeyDown={walk}>
      <Announcer />
      <div class="turns" ref={content}>
        <div ref={top} />
        {turns.slice(first).map((turn, at) => {
          const isLast = first + at === turns.length - 1;
          return <TurnView key={turn.id} turn={turn} isLast={isLast} openId={isLast ? openId : null} />;
        })}
        {isShown && turns.length === 0 && !isRunning.value && <Start />}
        {isRunning.value && newest?.kind !== "answer" && (
          <div class="message assistant"><Waiting isOpen={false} /></div>
        )}
        {standing === "error" && error && (
          <p class="ending bad failed" role="alert">
            {error}
            <button type="button" onClick={() => void regenerate()}>Retry</button>
          </p>
        )}
      </div>
      {!isAtEnd && (
        <button type="button" class="to-end" aria-label="Jump to newest" title="Jump to newest" onClick={() => keeper.current?.toEnd()}>
          <Icon name="open" />
        </button>
      )}
      <Lightbox />
      <MessageQuestions />
    </section>
  );
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

/** Alt and the arrows go from message to message. */
function walk(event: KeyboardEvent): void {
  const step = event.altKey ? { ArrowUp: -1, ArrowDown: 1 }[event.key] : undefined;
  if (step === undefined) return;
  const all = [...(event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>("article.message")];
  const at = all.findIndex((article) => article.contains(document.activeElement));
  const to = all[at < 0 ? all.length - 1 : at + step];
  to?.focus();
  event.preventDefault();
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
