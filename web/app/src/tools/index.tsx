/** The cards of tool calls, payloads and questions, for other parts of the page. */

import type { Message, PayloadAdded } from "threadcast-client";
import { useMemo } from "preact/hooks";

import { isRunShown } from "../state/session.ts";
import { CallCard, type CallCardProps } from "./call_card.tsx";
import { PayloadCard } from "./later.tsx";
import { ideCalls, openDraftId, payloads, reasons, results, statuses, subchats } from "./live.ts";
import css from "./calls.module.css";


export { Questions } from "./questions.tsx";
export { Suggestions } from "./suggestions.tsx";

/** Shows the calls of an answer with their progress and results. */
export function ToolCalls({ message }: { message: Message }) {
  const calls = message.tool_calls;
  if (!calls?.length) return null;
  const isDraft = openDraftId.value === message.message_id;
  return (
    <div class={css.calls} role="group" aria-label="Tools">
      {calls.map((call) => {
        const result = results.value.get(call.id);
        return (
          <Kept
            key={call.id}
            call={call}
            result={result}
            isDraft={isDraft}
            // A card with a result gets no other properties, so that their changes do not draw it again.
            status={result ? undefined : statuses.value.get(call.id)}
            reason={result ? undefined : reasons.value.find((reason) => reason.tool_call_id === call.id)}
            ideCall={result ? undefined : ideCalls.value.find((waiting) => waiting.tool_call_id === call.id)}
            chats={subchats.value.get(call.id)}
            isRunOpen={!result && isRunShown.value}
          />
        );
      })}
    </div>
  );
}

/** Draws a card again only when one of its properties changes: a chat may have a thousand calls, of which one runs. */
function Kept(props: CallCardProps) {
  const { call, result, status, reason, ideCall, chats, isDraft, isRunOpen } = props;
  return useMemo(() => <CallCard {...props} />, [call, result, status, reason, ideCall, chats, isDraft, isRunOpen]);
}

const byMessage = new WeakMap<readonly PayloadAdded[], Map<string, PayloadAdded[]>>();

function payloadsOn(all: readonly PayloadAdded[], messageId: string): readonly PayloadAdded[] {
  let found = byMessage.get(all);
  if (!found) {
    found = new Map();
    for (const payload of all) found.set(payload.message_id, [...(found.get(payload.message_id) ?? []), payload]);
    byMessage.set(all, found);
  }
  return found.get(messageId) ?? [];
}

/** Shows the payloads of an answer, from its text or from the tools that it called. */
export function PayloadsOf({ message }: { message: Message }) {
  const all = payloads.value;
  if (!all.length) return null;
  const answers = (message.tool_calls ?? []).flatMap((call) => results.value.get(call.id)?.message_id ?? []);
  const own = [...answers, message.message_id].flatMap((id) => payloadsOn(all, id));
  return own.length ? (
    <div class={css.payloads}>
      {own.map((payload) => (
        <PayloadCard key={payload.payload_id} payload={payload} />
      ))}
    </div>
  ) : null;
}
