/**
 * A chat page on `useChat` of `@ai-sdk/react`. With `?plain` in its address it uses the AI SDK's own transport, and
 * otherwise ours, with which tabs follow each other.
 *
 * The chat's id is in the address of the page, so that a reload and a second tab show the same chat.
 */

import { useChat } from "@ai-sdk/react";
import {
  DefaultChatTransport,
  getToolName,
  isToolUIPart,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  type ChatTransport,
  type UIMessage,
} from "ai";
import { useEffect, useRef, useState } from "react";
import { createRoot } from "react-dom/client";
import { ThreadcastTransport } from "threadcast-ai-sdk";
import { connect } from "threadcast-client";

const id = location.hash.slice(1) || crypto.randomUUID();
location.hash = id;
addEventListener("hashchange", () => location.reload());

const ours = new URLSearchParams(location.search).has("plain")
  ? null
  : new ThreadcastTransport(connect({ url: location.origin }));
const transport: ChatTransport<UIMessage> = ours ?? new DefaultChatTransport({ api: "/ai-sdk/chat" });

/** Returns the messages of the chat for a page that loads, or an empty list if the chat does not exist yet. */
async function loaded(): Promise<UIMessage[]> {
  const answer = await fetch(`/ai-sdk/chat/${encodeURIComponent(id)}`);
  return answer.ok ? answer.json() : [];
}

/** Stops the run at the server. With the AI SDK's own transport, `stop()` only closes this page's request. */
async function stopRun(): Promise<void> {
  await fetch(`/v1/chats/${encodeURIComponent(id)}/commands`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ type: "abort", client_request_id: crypto.randomUUID() }),
  });
}

function Part({ part, decide }: { part: UIMessage["parts"][number]; decide: (id: string, approved: boolean) => void }) {
  if (part.type === "text") return part.text;
  if (!isToolUIPart(part)) return null;
  const name = `${getToolName(part)} ${JSON.stringify(part.input ?? {})}`;
  switch (part.state) {
    case "approval-requested":
      return (
        <p>
          {name} <button onClick={() => decide(part.approval.id, true)}>Approve</button>{" "}
          <button onClick={() => decide(part.approval.id, false)}>Deny</button>
        </p>
      );
    case "output-available":
      return <p>{`${name}: ${typeof part.output === "string" ? part.output : JSON.stringify(part.output)}`}</p>;
    case "output-error":
      return <p>{`${name}: ${part.errorText}`}</p>;
    default:
      return <p>{name}</p>;
  }
}

function Page({ messages: initial }: { messages: UIMessage[] }) {
  const { messages, setMessages, sendMessage, resumeStream, stop, status, error, addToolApprovalResponse } = useChat({
    id,
    messages: initial,
    transport,
    resume: ours === null,
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
  });
  const [words, setWords] = useState("");
  const isBusy = status === "submitted" || status === "streaming";
  const busy = useRef(isBusy);
  busy.current = isBusy;
  useEffect(() => ours?.follow(id, { setMessages, resume: resumeStream, isBusy: () => busy.current }), []);
  return (
    <>
      <h1>AI SDK on Threadcast</h1>
      <ol aria-live="polite">
        {messages.map(({ id, parts }) => (
          <li key={id}>
            {parts.map((part, index) => (
              <Part key={index} part={part} decide={(id, approved) => void addToolApprovalResponse({ id, approved })} />
            ))}
          </li>
        ))}
      </ol>
      <p role="status">{error?.message}</p>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (!words.trim() || isBusy) return;
          setWords("");
          void sendMessage({ text: words });
        }}
      >
        <input aria-label="Message" autoComplete="off" value={words} onChange={({ target }) => setWords(target.value)} />
        <button disabled={isBusy}>Send</button>
        {isBusy && (
          <button type="button" onClick={() => void (ours ? stop() : stopRun())}>
            Stop
          </button>
        )}
      </form>
    </>
  );
}

createRoot(document.getElementById("page") as HTMLElement).render(<Page messages={ours ? [] : await loaded()} />);
