/**
 * Shows the scope and the context that are sent with the message. The person can read the exact text of both before
 * it is sent, and remove it.
 */

import type { JsonObject } from "threadcast-client";

import { command } from "../state/actions.ts";
import { labelOf } from "../state/contexts.ts";
import { handed, isShared } from "../state/handed.ts";
import { leaveScope, ownContext, withContext } from "../state/page_context.ts";
import { route } from "../state/route.ts";
import { IconButton } from "../ui/icon.tsx";
import css from "./context_chips.module.css";

export function PlaceChips() {
  const page = isShared.value ? handed.value : null;
  const { scope } = route.value;
  const own = ownContext.value;
  const isOwnSent = !page && own !== null && Object.keys(own).length > 0;
  if (!handed.value && !scope && !isOwnSent) return null;
  return (
    <ul class={css.chips} aria-label="Sent with your message">
      {page && <Chip words={`Page: ${labelOf(page)}`} sent={withContext().context} remove="Do not send the page's details" onRemove={() => (isShared.value = false)} />}
      {handed.value && !page && (
        <li class={css.off}>
          The page's details are not sent.
          <button type="button" onClick={() => (isShared.value = true)}>Send them</button>
        </li>
      )}
      {scope && !(page && "scope" in page) && (
        <Chip words={`Section: ${scope.replaceAll("/", " / ")}`} sent={{ scope: scope.split("/") }} remove="Do not send this section" onRemove={leaveScope} />
      )}
      {isOwnSent && <Chip words={`This chat is about: ${labelOf(own)}`} sent={own} remove="Remove this from the chat" onRemove={() => void command({ type: "set_params", patch: { context: null } })} />}
    </ul>
  );
}

function Chip({ words, sent, remove, onRemove }: { words: string; sent: JsonObject | undefined; remove: string; onRemove: () => void }) {
  return (
    <li>
      <details onFocusOut={closeWhenLeft}>
        <summary title="What is sent" dir="auto">{words}</summary>
        <pre tabIndex={0}>{JSON.stringify(sent, null, 2)}</pre>
      </details>
      <IconButton name="close" label={remove} onClick={onRemove} />
    </li>
  );
}

function closeWhenLeft(event: FocusEvent): void {
  const details = event.currentTarget as HTMLDetailsElement;
  if (!details.contains(event.relatedTarget as Node | null)) details.open = false;
}
