/**
 * The bar above the chat: its title, the state of the connection, and buttons for the list, time travel and the drawer.
 */

import { useEffect, useState } from "preact/hooks";
import type { ChatState, Connection } from "threadcast-client";

import { clockOf, momentOf } from "../drawer/play.ts";
import { isTravelling, travel } from "../drawer/way.tsx";
import { assistantName } from "../state/chosen.ts";
import { isDrawerOpen, isNarrow, isSidebarOpen } from "../state/layout.ts";
import { route } from "../state/route.ts";
import { chat, chats, client, connection, failure, isReady, live, earlier, title } from "../state/session.ts";
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
        {chat.value && assistantName.value !== "Assistant" && <span class={css.who} dir="auto" title="The assistant in this chat">{assistantName.value}</span>}
      </div>
      {earlier.value ? <OfPast was={earlier.value} /> : chat.value ? <OfChat /> : <OfList />}
      {chat.value && (
        <IconButton name="history" label="Time travel" pressed={isTravelling.value} disabled={!isReady.value || !live.value.position} onClick={() => void travel()} />
      )}
      <IconButton name="developer" label="Developer" pressed={isDrawerOpen.value} onClick={() => (isDrawerOpen.value = !isDrawerOpen.value)} />
    </header>
  );
}

/**
 * This text replaces the state of the connection while an earlier state of the chat is shown; `history.tsx` shows the
 * position.
 */
function OfPast({ was }: { was: ChatState }) {
  const moment = momentOf(was);
  const when = moment === null ? "before the first message" : clockOf(moment, Date.now());
  return (
    <span class={css.standing} data-kind="past" title="An earlier state of this chat. It cannot be changed.">
      <span role="status" class={css.said}>past, {when}</span>
    </span>
  );
}

function OfChat() {
  return <Shown how={connection.value} isReady={isReady.value} failure={failure.value} />;
}

/** Before a chat has begun, the connection of the list shows whether the server can be reached. */
function OfList() {
  const { isLive, refused, reason, retryAt, silentSince, isSignedOut } = chats.value;
  const how = { state: isLive ? "live" : "offline", held: 0, reason, retryAt, silentSince, isSignedOut } as const;
  return <Shown how={how} isReady failure={refused === undefined ? null : { message: refused }} />;
}

function Shown({ how, ...facts }: { how: Connection } & Pick<Facts, "isReady" | "failure">) {
  const nowMs = useNow(how.silentSince === undefined ? how.retryAt : Infinity);
  const now = standing({ connection: how, hasNetwork: navigator.onLine, nowMs, ...facts });
  const { kind, word, waiting, cause, seconds, canTry } = now;
  const isWide = kind === "offline" || kind === "refused" || waiting !== "" || how.isResting === true;
  return (
    <>
      {/* The seconds are outside of the announced text, because a screen reader would announce each of them. */}
      <span class={css.standing} data-kind={kind} data-wide={isWide ? "" : undefined} title={sentence(now)}>
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

/** Returns the current time on the clock of `retryAt`, and updates it until that time. */
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
