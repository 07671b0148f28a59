/** Shows a question of an agent or a tool to the person: a choice, a text, a form, or JSON (PROTOCOL §11). */

import type { JsonObject, PauseReason } from "threadcast-client";
import { useId, useState } from "preact/hooks";

import { Markdown } from "../thread/markdown/late.tsx";
import { Icon } from "../ui/icon.tsx";
import { answerOf, fieldsOf, type Field, type Filled } from "./answer_form.ts";
import { mcpServerOf, shownName } from "./calls.ts";
import { decide, isSent, questionKey } from "./decide.ts";
import { Standing } from "./question.tsx";
import css from "./calls.module.css";
import asksCss from "./questions.module.css";

export function PersonQuestion({ reason }: { reason: PauseReason }) {
  const heading = useId();
  const key = questionKey(reason);
  const asked = reason.question ?? { text: reason.command ?? "" };
  const answer = (value: unknown) => decide(reason, true, { edited_input: { answer: value } });
  const props = { answer, isBusy: isSent(key), reject: () => decide(reason, false), label: heading };
  return (
    <div class={asksCss.question} role="group" aria-labelledby={heading} data-question={reason.tool_call_id}>
      <header>
        <Icon name="person" />
        <span id={heading}><Asker toolName={reason.tool_name} /></span>
      </header>
      <div class={asksCss.questionText}>
        {/* The text of a tool is shown unformatted, so that it cannot look like text of the page or the assistant. */}
        {reason.tool_name ? <p class={asksCss.plainText} dir="auto">{asked.text}</p> : <Markdown text={asked.text} />}
      </div>
      {mcpServerOf(reason.tool_name) && <p class={asksCss.questionStanding}>Your answer goes to this server. Give it no passwords or keys.</p>}
      <Way {...props} options={asked.options ?? []} schema={asked.schema ?? null} />
      <Standing questionKey={key} />
    </div>
  );
}

function Asker({ toolName }: { toolName: string }) {
  const server = mcpServerOf(toolName);
  if (server) return <><b title={toolName}>The server {server}</b> asks you</>;
  return toolName ? <><b>{shownName(toolName)}</b> asks you</> : <b>A question for you</b>;
}

interface WayProps {
  readonly answer: (value: unknown) => void;
  readonly reject: () => void;
  readonly isBusy: boolean;
  /** The id of the heading, which names a field without a label of its own. */
  readonly label: string;
}

function Way({ options, schema, ...rest }: WayProps & { options: readonly string[]; schema: JsonObject | null }) {
  if (options.length) return <Options {...rest} options={options} />;
  if (!schema) return <FreeText {...rest} />;
  const fields = fieldsOf(schema);
  return fields ? <Form {...rest} fields={fields} /> : <Json {...rest} schema={schema} />;
}

function Options({ answer, reject, isBusy, options }: WayProps & { options: readonly string[] }) {
  return (
    <div class={asksCss.choices}>
      {options.map((option) => (
        <button key={option} type="button" class={asksCss.option} dir="auto" disabled={isBusy} onClick={() => answer(option)}>{option}</button>
      ))}
      <span class={asksCss.spring} />
      <Reject reject={reject} isBusy={isBusy} />
    </div>
  );
}

function FreeText({ answer, reject, isBusy, label }: WayProps) {
  const [text, setText] = useState("");
  const submit = () => {
    if (text.trim() && !isBusy) answer(text);
  };
  return (
    <form class={asksCss.editor} onSubmit={(event) => { event.preventDefault(); submit(); }}>
      <Lines text={text} setText={setText} submit={submit} label={label} />
      <Buttons reject={reject} isBusy={isBusy} isReady={text.trim() !== ""} />
    </form>
  );
}

/** A field that grows with its lines. Enter sends, Shift and Enter begin a new line. */
function Lines({ text, setText, submit, label, isInvalid = false, describedBy }: {
  text: string;
  setText: (text: string) => void;
  submit: () => void;
  label: string;
  isInvalid?: boolean;
  describedBy?: string;
}) {
  return (
    <textarea
      class={describedBy ? undefined : asksCss.proseField}
      aria-labelledby={label}
      aria-invalid={isInvalid}
      aria-describedby={describedBy}
      dir="auto"
      rows={Math.min(8, text.split("\n").length)}
      value={text}
      onInput={(event) => setText(event.currentTarget.value)}
      onKeyDown={(event) => {
        if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
        event.preventDefault();
        submit();
      }}
    />
  );
}

function Json({ answer, reject, isBusy, label, schema }: WayProps & { schema: JsonObject }) {
  const [text, setText] = useState("");
  const wrongId = useId();
  const read = readJson(text);
  const submit = () => {
    if ("value" in read && !isBusy) answer(read.value);
  };
  return (
    <form class={asksCss.editor} onSubmit={(event) => { event.preventDefault(); submit(); }}>
      <details class={asksCss.schema}>
        <summary>The answer is JSON of this form</summary>
        <pre tabIndex={0}>{JSON.stringify(schema, null, 2)}</pre>
      </details>
      <Lines text={text} setText={setText} submit={submit} label={label} isInvalid={"error" in read && text !== ""} describedBy={wrongId} />
      <p id={wrongId} class={asksCss.editorWrong} role="status">{"error" in read && text ? read.error : ""}</p>
      <Buttons reject={reject} isBusy={isBusy} isReady={"value" in read} />
    </form>
  );
}

function readJson(text: string): { value: unknown } | { error: string } {
  try {
    return { value: JSON.parse(text) as unknown };
  } catch {
    return { error: "This is not JSON." };
  }
}

function Form({ answer, reject, isBusy, fields }: WayProps & { fields: readonly Field[] }) {
  const [filled, setFilled] = useState<Readonly<Record<string, Filled>>>({});
  return (
    <form
      class={asksCss.editor}
      onSubmit={(event) => {
        event.preventDefault();
        if (!isBusy) answer(answerOf(fields, filled));
      }}
    >
      {fields.map((field) => (
        <FormField key={field.name} field={field} value={filled[field.name] ?? field.initial} onChange={(value) => setFilled({ ...filled, [field.name]: value })} />
      ))}
      <Buttons reject={reject} isBusy={isBusy} isReady />
    </form>
  );
}

function FormField({ field, value, onChange }: { field: Field; value: Filled; onChange: (value: Filled) => void }) {
  const id = useId();
  const about = field.description ? `${id}-about` : undefined;
  const words = field.description && <small id={about} class={css.quiet} dir="auto">{field.description}</small>;
  const label = <>{field.label}{field.isRequired && field.kind !== "boolean" ? " *" : ""}</>;
  if (field.kind === "choices") {
    const chosen = Array.isArray(value) ? (value as readonly number[]) : [];
    return (
      <fieldset class={asksCss.browserParts} aria-describedby={about}>
        <legend dir="auto">{label}</legend>
        {field.choices.map((choice, at) => (
          <label key={at}>
            <input
              type="checkbox"
              checked={chosen.includes(at)}
              onChange={(event) => onChange(event.currentTarget.checked ? [...chosen, at].sort((a, b) => a - b) : chosen.filter((one) => one !== at))}
            />
            {choice.label}
          </label>
        ))}
        {words}
      </fieldset>
    );
  }
  if (field.kind === "boolean") {
    return (
      <p class={asksCss.formField}>
        <label><input type="checkbox" checked={value === true} aria-describedby={about} onChange={(event) => onChange(event.currentTarget.checked)} /> {label}</label>
        {words}
      </p>
    );
  }
  return (
    <p class={asksCss.formField}>
      <label for={id} dir="auto">{label}</label>
      {field.kind === "choice" ? (
        <select id={id} required={field.isRequired} aria-describedby={about} onChange={(event) => onChange(event.currentTarget.value === "" ? [] : [Number(event.currentTarget.value)])}>
          <option value="" selected={!Array.isArray(value) || value.length === 0}>{field.isRequired ? "Choose…" : "–"}</option>
          {field.choices.map((choice, at) => (
            <option key={at} value={String(at)} selected={Array.isArray(value) && value[0] === at}>{choice.label}</option>
          ))}
        </select>
      ) : (
        // Preact's types know no input whose type is a variable.
        <input id={id} {...(field.input as { type: "text" })} dir="auto" required={field.isRequired} autocomplete="off" aria-describedby={about} value={String(value)} onInput={(event) => onChange(event.currentTarget.value)} />
      )}
      {words}
    </p>
  );
}

function Buttons({ reject, isBusy, isReady }: { reject: () => void; isBusy: boolean; isReady: boolean }) {
  return (
    <div class={asksCss.choices}>
      <button type="submit" class="primary" disabled={isBusy || !isReady}>Answer</button>
      <span class={asksCss.spring} />
      <Reject reject={reject} isBusy={isBusy} />
    </div>
  );
}

function Reject({ reject, isBusy }: { reject: () => void; isBusy: boolean }) {
  return <button type="button" class="dangerous" disabled={isBusy} title="Do not answer" onClick={reject}>Reject</button>;
}
