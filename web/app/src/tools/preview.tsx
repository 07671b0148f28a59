/**
 * Shows a change that a tool proposes, compared with the present data, with buttons that apply or discard it. Nothing
 * is saved before the person applies the change.
 */

import type { JsonObject, PayloadAdded } from "threadcast-client";
import { useId, useState } from "preact/hooks";

import { Icon } from "../ui/icon.tsx";
import { readable } from "./shape.ts";
import { decide, isSent, questionKey } from "./decide.ts";
import { ChangeOf } from "./changes.tsx";
import { changesOf } from "./diff.ts";
import { Editor } from "./editor.tsx";
import { fieldName } from "./format.ts";
import { payloads, statuses } from "./live.ts";
import { approvalWords, beforeOf, proposalOf } from "./previews.ts";
import { Note, Standing } from "./question.tsx";
import { PayloadData } from "./payload_data.tsx";
import css from "./calls.module.css";
import bodyCss from "./call_body.module.css";
import asksCss from "./questions.module.css";
import dataCss from "./payloads.module.css";

/** Asks about a preview in one line above the message box; the whole preview is in the conversation. */
export function PreviewQuestion({ payload }: { payload: PayloadAdded }) {
  const heading = useId();
  const isBusy = isSent(questionKey(payload));
  const show = () => {
    const card = document.getElementById(`payload-${payload.payload_id}`);
    card?.scrollIntoView({ block: "center" });
    card?.focus({ preventScroll: true });
  };
  return (
    <div class={`${asksCss.question} ${asksCss.previewLine}`} role="group" aria-labelledby={heading} data-payload={payload.payload_id}>
      <header>
        <Icon name="file" />
        <span class={asksCss.oneLine} id={heading}>
          <b>{proposalOf(payload).description}</b> <span class={css.quiet}>nothing is saved yet</span>
        </span>
        <span class={asksCss.choices}>
          <button type="button" onClick={show}>Show</button>
          <button type="button" class="dangerous" disabled={isBusy} onClick={() => decide(payload, false)}>Discard</button>
          <button type="button" class="primary" disabled={isBusy} onClick={() => decide(payload, true)}>Apply</button>
        </span>
      </header>
      <Standing questionKey={questionKey(payload)} />
    </div>
  );
}

/** Shows the whole preview, in the conversation. */
export function PreviewCard({ payload }: { payload: PayloadAdded }) {
  const [mode, setMode] = useState<"plain" | "edit" | "note">("plain");
  const [isWhole, setWhole] = useState(false);
  const heading = useId();
  const { description, object, isUpdate, objectId } = proposalOf(payload);
  const isOpen = payload.approval === "pending";
  const isBusy = isSent(questionKey(payload));
  const before = beforeOf(payload, payloads.value);
  const isSaving = statuses.value.has(`commit-${payload.payload_id}`);
  const said = approvalWords(payload.approval, isSaving);
  return (
    <section
      class={`${css.payload} ${dataCss.preview}`}
      data-tone={said.tone}
      id={`payload-${payload.payload_id}`}
      data-approval={payload.approval}
      tabIndex={-1}
      aria-labelledby={heading}
      onKeyDown={(event) => event.key === "Escape" && mode !== "plain" && (event.stopPropagation(), setMode("plain"))}
    >
      <header>
        <Icon name="file" />
        <h4 id={heading}>{description}</h4>
        <span class={css.quiet} title={objectId ?? undefined}>{isUpdate ? "change" : "new"} {fieldName(payload.payload_type).toLowerCase()}</span>
        <span class={dataCss.approval} data-tone={said.tone} role="status">
          {said.text}
          {payload.by && !isOpen && payload.by !== "anonymous" ? ` by ${payload.by}` : ""}
        </span>
      </header>
      {mode === "edit" ? (
        <Editor
          value={object}
          submitLabel="Apply this"
          isBusy={isBusy}
          onSubmit={(edited) => decide(payload, true, edited ? { edited_input: edited } : {})}
          onLeave={() => setMode("plain")}
        />
      ) : before && !isWhole ? (
        <Changes before={before.object} after={object} since={before.since} onWhole={() => setWhole(true)} />
      ) : (
        <PayloadData type={payload.payload_type} data={object} />
      )}
      {isOpen && mode === "plain" && (
        <div class={asksCss.choices}>
          <button type="button" class="primary" disabled={isBusy} onClick={() => decide(payload, true)}>Apply</button>
          <button type="button" disabled={isBusy} onClick={() => setMode("edit")}>Edit…</button>
          <span class={asksCss.spring} />
          <button type="button" disabled={isBusy} onClick={() => setMode("note")}>Discard with a note…</button>
          <button type="button" class="dangerous" disabled={isBusy} onClick={() => decide(payload, false)}>Discard</button>
        </div>
      )}
      {isOpen && mode === "note" && (
        <Note isBusy={isBusy} label="Discard" onDeny={(note) => decide(payload, false, { note })} onLeave={() => setMode("plain")} />
      )}
      {isOpen && <Standing questionKey={questionKey(payload)} />}
    </section>
  );
}

function Changes({ before, after, since, onWhole }: { before: JsonObject; after: JsonObject; since: string; onWhole: () => void }) {
  const changes = changesOf(readable(before), readable(after));
  const changed = changes.filter((change) => change.kind !== "same");
  const same = changes.filter((change) => change.kind === "same");
  return (
    <div class={dataCss.changes}>
      <p class={css.quiet}>
        Compared with {since}{changed.length ? "" : ": no differences"}. <button type="button" class={bodyCss.showAll} data-unfolds onClick={onWhole}>Show the whole</button>
      </p>
      {changed.map((change) => (
        <ChangeOf key={change.field} change={change} />
      ))}
      {same.length > 0 && changed.length > 0 && <p class={css.quiet}>Unchanged: {same.map((change) => fieldName(change.field)).join(", ")}</p>}
    </div>
  );
}
