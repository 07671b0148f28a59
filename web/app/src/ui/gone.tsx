/** Replaces the composer for a chat that is gone, and for an address without a chat. */

import { useState } from "preact/hooks";

import { go, route } from "../state/route.ts";
import { chats, isReady } from "../state/session.ts";
import { drop, unsent, write, written } from "../state/writing.ts";

import css from "./gone.module.css";

/** Shown below a chat that no longer exists. Its messages stay on the screen, and the draft is not lost. */
export function Gone({ wrong }: { wrong: Error }) {
  const id = route.value.chatId;
  const texts = [...unsent.value.filter(({ chatId }) => chatId === id).map(({ draft }) => draft.text), written.value.text];
  const text = texts.filter((each) => each.trim()).join("\n\n");
  const isDeleted = "status" in wrong && wrong.status === 404;
  const next = chats.value.chats.find((chat) => chat.id !== id);
  const [isKept, setKept] = useState(false);
  const takeAlong = () => {
    for (const { id: unsentId, chatId } of unsent.peek()) if (chatId === id) drop(unsentId);
    write({ text: "", files: [] });
    go(null);
    write({ text: [written.peek().text, text].filter(Boolean).join("\n\n") });
  };
  const copy = () => void navigator.clipboard?.writeText(text).then(() => setKept(true), () => {});
  if (!isReady.value && !text) return null; // the conversation shows the reason
  return (
    <section class={css.gone} aria-label="This chat has ended">
      {isReady.value && (
        <p>
          <strong>{isDeleted ? "This chat was deleted." : "This chat cannot be followed any more."}</strong>{" "}
          {isDeleted ? "What you see is what this page still holds of it; it is gone when you leave." : `The reason: ${wrong.message}.`}
        </p>
      )}
      {text && (
        <blockquote class={css.text} dir="auto" tabIndex={0} aria-label="What you were writing">
          {text}
        </blockquote>
      )}
      <div class={css.ways}>
        {text && (
          <button type="button" class="primary" onClick={takeAlong}>
            Write it in a new chat
          </button>
        )}
        {text && (
          <button type="button" onClick={copy}>
            {isKept ? "Copied" : "Copy it"}
          </button>
        )}
        {!text && (
          <button type="button" class="primary" onClick={() => go(null)}>
            New chat
          </button>
        )}
        {next && (
          <button type="button" class={css.next} title={next.title} onClick={() => go(next.id)}>
            Open “{next.title || "New Chat"}”
          </button>
        )}
      </div>
    </section>
  );
}

export function NoSuchAddress() {
  const newest = chats.value.chats[0];
  return (
    <section class={css.nowhere} aria-label="No such address">
      <h2>There is no such address</h2>
      <p>
        No chat can be called <code>{shown(location.pathname)}</code>. Look whether all of the link was copied.
      </p>
      <div class={css.ways}>
        <button type="button" class="primary" onClick={() => go(null)}>
          New chat
        </button>
        {newest && (
          <button type="button" class={css.next} onClick={() => go(newest.id)}>
            Open “{newest.title || "New Chat"}”
          </button>
        )}
      </div>
    </section>
  );
}

/** The part of the address after `/c/`, decoded. */
function shown(path: string): string {
  const name = path.replace(/^\/c\//, "");
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}
