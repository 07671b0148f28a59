/** The way to a chat below this one, with how it stands: what it asks there holds this one up. */

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
  waiting_user_input: "waiting for words",
  running: "running",
};

interface Standing {
  title: string;
  state: string;
}

/** `isDone`: the call that began it has its answer. Whoever is at work is watched, on the page's one connection. */
export function Subchat({ chatId, isDone }: { chatId: string; isDone: boolean }) {
  const agent = agents.value.find((each) => each.id === chatId);
  const isOver = agent ? agent.status !== "running" : isDone;
  const live = useStanding(isOver ? null : chatId);
  const title = String(agent?.title || live?.title || "chat below");
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

function Summary({ agent }: { agent: JsonObject }) {
  return typeof agent.summary === "string" && agent.summary ? <p class={bodyCss.belowSummary}>{agent.summary}</p> : null;
}

/** A plain click stays in this page; the others do what a link does. */
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
      setStanding((last) =>
        last && last.title === thread.title && last.state === runtime.state ? last : { title: thread.title ?? "", state: runtime.state },
      );
    };
    const stop = below.subscribe(look);
    return () => {
      stop();
      below.close();
    };
  }, [chatId]);
  return standing;
}
