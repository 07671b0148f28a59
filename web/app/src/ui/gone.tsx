/** Replaces the composer for a chat that is gone, and for an address without a chat. */

import { useState } from "preact/hooks";

import { go, route } from "../state/route.ts";
import { chats, isReady } from "../state/session.ts";
import { drop, unsent, write, written } from "../state/writing.ts";
import { titleOf } from "./title.ts";

import css from "./gone.module.css";

/**
 * This notice is shown below a chat that no longer exists. The chat's messages stay on the screen, and the draft is not
 * lost.
 */
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
          <strong>{isDeleted ? "This chat was deleted." : "This chat can no longer be updated."}</strong>{" "}
          {isDeleted ? "These messages are lost when you leave the page." : `The reason: ${wrong.message}.`}
        </p>
      )}
      {text && (
        <blockquote class={css.text} dir="auto" tabIndex={0} aria-label="Your draft">
          {text}
        </blockquote>
      )}
      <div class={css.ways}>
        {text && (
          <button type="button" class="primary" onClick={takeAlong}>
            Use it in a new chat
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
          <button type="button" class={css.next} title={titleOf(next.title)} onClick={() => go(next.id)}>
            Open “{titleOf(next.title)}”
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
      <h2>This address does not exist</h2>
      <p>
        No chat can be called <code>{shown(location.pathname)}</code>. Check that the whole link was copied.
      </p>
      <div class={css.ways}>
        <button type="button" class="primary" onClick={() => go(null)}>
          New chat
        </button>
        {newest && (
          <button type="button" class={css.next} onClick={() => go(newest.id)}>
            Open “{titleOf(newest.title)}”
          </button>
        )}
      </div>
    </section>
  );
}

/** Returns the part of the address after `/c/`, decoded. */
function shown(path: string): string {
  const name = path.replace(/^\/c\//, "");
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}
