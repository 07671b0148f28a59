/** What tools do and ask, as cards: what other rooms of the page put in their places. */

import type { Message } from "threadcast-client";

/** Under an answer: the calls it made, with their progress and results. */
export function ToolCalls(_: { message: Message }) {
  return null;
}

/** Under an answer: the payloads that came with it. */
export function PayloadsOf(_: { message: Message }) {
  return null;
}

/** Above the composer: what a person must decide before the run goes on. */
export function Questions() {
  return null;
}

/** Above the composer, at rest: replies and actions that the answer proposes. */
export function Suggestions() {
  return null;
}
