/** The bar above the chat: its title, how we stand to the server, and the ways to what stands beside it. */

import { useEffect, useState } from "preact/hooks";
import type { ChatState, Connection } from "threadcast-client";

import { clockOf, momentOf } from "../drawer/play.ts";
import { isTravelling, travel } from "../drawer/way.tsx";
import { assistantName } from "../state/chosen.ts";
import { isDrawerOpen, isNarrow, isSidebarOpen } from "../state/layout.ts";
import { route } from "../state/route.ts";
import { chat, chats, client, connection, failure, isReady, live, past, title } from "../state/session.ts";
import { IconButton } from "./icon.tsx";
import { sentence, standing, type Facts } from "./standing.ts";
import css from "./frame.module.css";

export function ConnectionBar() {
  return (
    <header class={css.bar}>
      {isNarrow.value && (
        <IconButton name="menu" label="Chats" pressed={isSidebarOpen.value} onClick={() => (isSidebarOpen.value = true)} />
      )}
      <div class={css.titles}>
        <h1 dir="auto" title={title.value}>{route.value.isUnknown ? "No such address" : chat.value ? title.value : "New chat"}</h1>
        {chat.value && assistantName.value !== "Assistant" && <span class={css.who} dir="auto" title="Who answers in this chat">{assistantName.value}</span>}
      </div>
      {past.value ? <OfPast was={past.value} /> : chat.value ? <OfChat /> : <OfList />}
      {chat.value && (
        <IconButton name="history" label="Time travel" pressed={isTravelling.value} disabled={!isReady.value || !live.value.position} onClick={() => void travel()} />
      )}
      <IconButton name="developer" label="Developer" pressed={isDrawerOpen.value} onClick={() => (isDrawerOpen.value = !isDrawerOpen.value)} />
    </header>
  );
}

/** Shown instead of the connection while an earlier state of the chat is on the screen; `past.tsx` shows the position. */
function OfPast({ was }: { was: ChatState }) {
  const moment = momentOf(was);
  const when = moment === null ? "before the first message" : clockOf(moment, Date.now());
  return (
    <span class={css.standing} data-kind="past" title="An earlier state of this chat. Nothing can be changed in it.">
      <span role="status" class={css.said}>past, {when}</span>
    </span>
  );
}

function OfChat() {
  return <Shown how={connection.value} isReady={isReady.value} failure={failure.value} />;
}

/** Before a chat has begun there is still the list, whose connection tells whether the server is there. */
function OfList() {
  const { isLive, refused, reason, retryAt, silentSince, isSignedOut } = chats.value;
  const how = { state: isLive ? "live" : "offline", held: 0, reason, retryAt, silentSince, isSignedOut } as const;
  return <Shown how={how} isReady failure={refused === undefined ? null : { message: refused }} />;
}

function Shown({ how, ...facts }: { how: Connection } & Pick<Facts, "isReady" | "failure">) {
  const nowMs = useNow(how.silentSince === undefined ? how.retryAt : Infinity);
  const now = standing({ connection: how, hasNetwork: navigator.onLine, nowMs, ...facts });
  const { kind, word, waiting, cause, seconds, canTry } = now;
  return (
    <>
      {/* The seconds stand outside of what is read out: a screen reader would say each of them. */}
      <span class={css.standing} data-kind={kind} title={sentence(now)}>
        <span role="status" class={css.said}>
          {word}
          {waiting && `, ${waiting}`}
          {cause && <span class={css.cause}>, {cause}</span>}
        </span>
        {seconds && <span class={css.soon} aria-hidden="true">{seconds.startsWith("for") ? " " : ", "}{seconds}</span>}
      </span>
      {canTry && (
        <button type="button" class={css.tryNow} onClick={() => client.retry()}>
          Try now
        </button>
      )}
    </>
  );
}

/** The time on the clock of `retryAt`, renewed until then. */
function useNow(untilMs = 0): number {
  const [nowMs, setNow] = useState(() => performance.now());
  const isDue = untilMs > nowMs;
  useEffect(() => {
    setNow(performance.now());
    if (untilMs <= performance.now()) return;
    const timer = setInterval(() => setNow(performance.now()), 250);
    return () => clearInterval(timer);
  }, [untilMs, isDue]);
  return nowMs;
}
