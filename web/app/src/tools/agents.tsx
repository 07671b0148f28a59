/** Shows the background work of this chat: agents, chats of running calls, and processes that have just ended. */

import { addressOf } from "../state/route.ts";
import { Icon, IconButton } from "../ui/icon.tsx";
import { agents, atWork, ended, subchats } from "./live.ts";
import { follow } from "./subchat.tsx";
import { titleOf } from "../ui/title.ts";
import bodyCss from "./call_body.module.css";
import css from "./calls.module.css";

export function Agents() {
  const running = agents.value.filter((agent) => agent.status === "running");
  const known = new Set([...running.map((agent) => agent.id), ...[...subchats.value.values()].flat()]);
  const others = atWork.value.filter((chat) => !known.has(chat.id));
  if (!running.length && !others.length && !ended.value.length) return null;
  return (
    <ul class={bodyCss.agents} aria-label="In the background">
      {running.map((agent) => (
        <li key={String(agent.id)}>
          <i class={css.spin} />
          <a href={addressOf(String(agent.chat_id ?? agent.id))} onClick={(event) => follow(event, String(agent.chat_id ?? agent.id))}>
            {String(agent.title || "agent")}
          </a>
          <span class={css.quiet}>running</span>
        </li>
      ))}
      {others.map((chat) => (
        <li key={chat.id}>
          <i class={chat.state === "paused" ? css.pulse : css.spin} />
          <a href={addressOf(chat.id)} onClick={(event) => follow(event, chat.id)}>{titleOf(chat.title)}</a>
          <span class={css.quiet}>{chat.state === "paused" ? "needs your decision" : "running"}</span>
        </li>
      ))}
      {ended.value.map((process) => (
        <li key={process.process_id} role="status">
          <Icon name={process.status === "completed" ? "check" : "warn"} />
          {process.short_description || "a process"}
          <span class={process.status === "completed" ? css.quiet : css.bad}>
            {process.status}
            {process.exit_code ? `, exit code ${process.exit_code}` : ""}
          </span>
          <IconButton name="close" label="Dismiss" onClick={() => (ended.value = ended.value.filter((other) => other !== process))} />
        </li>
      ))}
    </ul>
  );
}
