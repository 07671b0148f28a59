/**
 * A link to a chat that a call has started, with its state. The open chat waits while the linked chat asks a question.
 */

import type { JsonObject } from "threadcast-client";
import { useEffect, useState } from "preact/hooks";

import { addressOf, go } from "../state/route.ts";
import { client } from "../state/session.ts";
import { Icon } from "../ui/icon.tsx";
import { agents } from "./live.ts";
import css from "./calls.module.css";
import bodyCss from "./call_body.module.css";

const WORDS: Record<string, string> = {
  generating: "answering",
  executing_tools: "working",
  paused: "needs your decision",
  waiting_ide: "waiting for an editor",
  waiting_user_input: "waiting for a message",
  running: "running",
};

interface Standing {
  title: string;
  state: string;
}

/**
 * Shows the link. `isDone` says that the call which started the chat has a result. Watches a working chat, over the
 * page's connection.
 */
export function Subchat({ chatId, isDone }: { chatId: string; isDone: boolean }) {
  const agent = agents.value.find((each) => each.id === chatId);
  const isOver = agent ? agent.status !== "running" : isDone;
  const live = useStanding(isOver ? null : chatId);
  const title = String(agent?.title || live?.title || "chat of this call");
  const state = isOver ? (agent ? String(agent.status) : "") : (live?.state ?? "running");
  return (
    <div class={css.below} data-subchat={chatId} data-state={state}>
      <a href={addressOf(chatId)} onClick={(event) => follow(event, chatId)}>
        <Icon name="fork" /> {title}
      </a>
      {state && <span role="status">{WORDS[state] ?? state}</span>}
      {isOver && agent && <Summary agent={agent} />}
    </div>
  );
}

/** Says what the chat waits for, such as "needs your decision"; says nothing while the chat works. */
export function ChatNeeds({ chatId }: { chatId: string }) {
  const state = useStanding(chatId)?.state ?? "";
  return state === "paused" || state.startsWith("waiting") ? <span class={css.quiet} role="status">{WORDS[state]}</span> : null;
}

function Summary({ agent }: { agent: JsonObject }) {
  return typeof agent.summary === "string" && agent.summary ? <p class={bodyCss.belowSummary}>{agent.summary}</p> : null;
}

/** A plain click opens the chat in this page; other clicks have their usual effect on a link. */
export function follow(event: MouseEvent, chatId: string): void {
  if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  go(chatId);
}

function useStanding(chatId: string | null): Standing | null {
  const [standing, setStanding] = useState<Standing | null>(null);
  useEffect(() => {
    if (chatId === null) return;
    const below = client.chat(chatId);
    const look = () => {
      if (!below.isReady) return;
      const { thread, runtime } = below.state;
      const state = runtime.pause_reasons.length ? "paused" : runtime.state; // a tool that asks does not pause its run
      setStanding((last) => (last && last.title === thread.title && last.state === state ? last : { title: thread.title ?? "", state }));
    };
    const stop = below.subscribe(look);
    return () => {
      stop();
      below.close();
    };
  }, [chatId]);
  return standing;
}
