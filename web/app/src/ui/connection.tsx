/** The bar above the chat: its title, how we stand to the server, and the ways to what stands beside it. */

import { useEffect, useState } from "preact/hooks";

import { isTravelling, travel } from "../drawer/way.tsx";
import { isDrawerOpen, isNarrow, isSidebarOpen } from "../state/layout.ts";
import { chat, chats, client, connection, failure, isReady, live, title } from "../state/session.ts";
import { IconButton } from "./icon.tsx";
import { sentence, standing, type Standing } from "./standing.ts";
import css from "./frame.module.css";

export function ConnectionBar() {
  return (
    <header class={css.bar}>
      {isNarrow.value && (
        <IconButton name="menu" label="Chats" pressed={isSidebarOpen.value} onClick={() => (isSidebarOpen.value = true)} />
      )}
      <h1 dir="auto" title={title.value}>{chat.value ? title.value : "New chat"}</h1>
      {chat.value ? <OfChat /> : <OfList />}
      {chat.value && (
        <IconButton name="history" label="Time travel" pressed={isTravelling.value} disabled={!isReady.value || !live.value.position} onClick={() => void travel()} />
      )}
      <IconButton name="developer" label="Developer" pressed={isDrawerOpen.value} onClick={() => (isDrawerOpen.value = !isDrawerOpen.value)} />
    </header>
  );
}

function OfChat() {
  const nowMs = useNow(connection.value.retryAt);
  const facts = { connection: connection.value, isReady: isReady.value, failure: failure.value, hasNetwork: navigator.onLine, nowMs };
  return <Shown {...standing(facts)} />;
}

/** Before a chat has begun there is still the list, whose connection tells whether the server is there. */
function OfList() {
  const { isLive, refused } = chats.value;
  const failed = refused === undefined ? null : { message: refused, status: 403 };
  const now = { state: isLive ? "live" : "offline", held: 0 } as const;
  return <Shown {...standing({ connection: now, isReady: true, failure: failed, hasNetwork: navigator.onLine, nowMs: 0 })} />;
}

function Shown(now: Standing) {
  const { kind, word, waiting, cause, retrySeconds } = now;
  return (
    <>
      {/* The seconds stand outside of what is read out: a screen reader would say each of them. */}
      <span class={css.standing} data-kind={kind} title={sentence(now)}>
        <span role="status" class={css.said}>
          {word}
          {waiting && `, ${waiting}`}
          {cause && <span class={css.cause}>, {cause}</span>}
        </span>
        {retrySeconds !== null && <span class={css.soon} aria-hidden="true">, again in {retrySeconds} s</span>}
      </span>
      {kind === "offline" && (
        <button type="button" class={css.tryNow} onClick={() => client.faults.cut()}>
          Try now
        </button>
      )}
    </>
  );
}

/** The time on the clock of `retryAt`, renewed for as long as something is due. */
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
