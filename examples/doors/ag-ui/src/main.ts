/**
 * A chat page on `@ag-ui/client`, with nothing of Threadcast's own but the address and the Stop button.
 *
 * The chat's id is in the address of the page, so that a reload and a second tab show the same chat. Running the agent
 * without a new message loads the chat, and joins its open run.
 */

import { HttpAgent, type Interrupt, type Message, type ResumeEntry } from "@ag-ui/client";

const threadId = location.hash.slice(1) || crypto.randomUUID();
location.hash = threadId;
addEventListener("hashchange", () => location.reload());

const find = <T extends HTMLElement>(id: string) => document.getElementById(id) as T;
const list = find<HTMLOListElement>("messages");
const questions = find("interrupts");
const status = find("status");
const words = find<HTMLInputElement>("words");
const sendButton = find<HTMLButtonElement>("send");
const stopButton = find<HTMLButtonElement>("stop");

const agent = new HttpAgent({ url: "/ag-ui", threadId });
agent.subscribe({
  onMessagesChanged: ({ messages }) => show(messages),
  onRunErrorEvent: ({ event }) => void (status.textContent = event.message),
});

function textOf(message: Message): string {
  if (message.role === "activity") return "";
  if (typeof message.content === "string") return message.content;
  return (message.content ?? []).map((part) => (part.type === "text" ? part.text : `[${part.type}]`)).join("\n");
}

function show(messages: readonly Message[]): void {
  const shown = messages.filter((message) => textOf(message) !== "" && message.role !== "reasoning");
  list.replaceChildren(
    ...shown.map((message) => {
      const item = document.createElement("li");
      item.dataset.role = message.role;
      item.textContent = textOf(message);
      return item;
    }),
  );
}

function ask(interrupts: Interrupt[]): void {
  questions.replaceChildren(
    ...interrupts.map((interrupt) => {
      const box = document.createElement("p");
      box.append(interrupt.message ?? interrupt.reason, " ");
      const schema = interrupt.responseSchema as { properties?: object; enum?: string[] } | undefined;
      const answers: [string, unknown][] =
        schema?.properties && "approved" in schema.properties
          ? [["Approve", { approved: true }], ["Deny", { approved: false }]]
          : (schema?.enum ?? []).map((option) => [option, option]);
      for (const [label, payload] of answers) {
        const button = document.createElement("button");
        button.textContent = label;
        button.onclick = () => {
          const rest = interrupts.filter((other) => other !== interrupt);
          const resume: ResumeEntry[] = [
            { interruptId: interrupt.id, status: "resolved", payload },
            ...rest.map((other) => ({ interruptId: other.id, status: "cancelled" as const })),
          ];
          void run({ resume });
        };
        box.append(button, " ");
      }
      return box;
    }),
  );
}

async function run(parameters: { resume?: ResumeEntry[] } = {}): Promise<void> {
  sendButton.disabled = true;
  stopButton.hidden = false;
  status.textContent = "";
  questions.replaceChildren();
  try {
    await agent.runAgent(parameters);
  } catch (error) {
    status.textContent = error instanceof Error ? error.message : String(error);
  } finally {
    sendButton.disabled = false;
    stopButton.hidden = true;
    ask(agent.pendingInterrupts);
  }
}

/** Stops the run at the server. `agent.abortRun()` would only close this page's request. */
async function stop(): Promise<void> {
  await fetch(`/v1/chats/${encodeURIComponent(threadId)}/commands`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ type: "abort", client_request_id: crypto.randomUUID() }),
  });
}

find<HTMLFormElement>("form").onsubmit = (event) => {
  event.preventDefault();
  if (!words.value.trim() || sendButton.disabled) return;
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content: words.value });
  show(agent.messages);
  words.value = "";
  void run();
};
stopButton.onclick = () => void stop();
void run();
