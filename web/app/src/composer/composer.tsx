/** Where people write. A chat begins with its first message, and so does its address. */

import { useState } from "preact/hooks";

import { go } from "../state/route.ts";
import { chat, isRunning, notify } from "../state/session.ts";

export function Composer() {
  const [text, setText] = useState("");
  const send = () => {
    if (!text.trim()) return;
    if (!chat.value) go(crypto.randomUUID());
    try {
      chat.value?.send(text);
      setText("");
    } catch (wrong) {
      notify(String(wrong));
    }
  };
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <textarea
        aria-label="Message"
        placeholder="Write a message"
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
          event.preventDefault();
          send();
        }}
      />
      {isRunning.value && (
        <button type="button" onClick={() => chat.value?.send({ type: "abort" })}>Stop</button>
      )}
      <button type="submit">Send</button>
    </form>
  );
}
