/** Shows one setting: its label, its explanation, its control, and the layer that its value comes from. */

import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

import { caps } from "../state/caps.ts";
import { state } from "../state/session.ts";
import { choiceFrom, CLEARED, listFrom, listText, numberFrom, originOf, samplerNote } from "./params.ts";
import type { ChoiceParam, ListParam, NumberParam, Param, SwitchParam, TextParam } from "./params.ts";
import { modeTitle, refusals, refuse, set, values } from "./values.ts";
import css from "./settings.module.css";

export function Rows({ params }: { params: readonly Param[] }) {
  return (
    <>
      {params.map((param) => (
        <ParamRow key={param.key} param={param} />
      ))}
    </>
  );
}

function ParamRow({ param }: { param: Param }) {
  const id = useId();
  return (
    <Row id={id} name={param.key} label={param.label} help={`${param.help} ${noteOn(param)}`.trim()} isWide={param.kind === "text"}>
      {control(param, id)}
    </Row>
  );
}

/** A value that this model does not support is kept for other models; the server refuses values that no model supports. */
function noteOn({ key, isSampler }: Param): string {
  const known = caps.value;
  if (!isSampler || !known) return "";
  const model = (String(values.value.model?.value || state.value.thread.model || known.chat_default_model).split("?")[0]) as string;
  const takes = known.chat_models[model]?.samplers ?? known.samplers[model.split("/")[0] as string] ?? [];
  const any = [...Object.values(known.samplers), ...Object.values(known.chat_models).map((one) => one.samplers)].flat();
  return samplerNote(key, model, takes, any);
}

/** Lays out a setting that is a parameter of the chat. */
export function Row({
  id,
  name,
  label,
  help,
  isWide,
  children,
}: {
  id: string;
  name: string;
  label: string;
  help: string;
  isWide?: boolean;
  children: ComponentChildren;
}) {
  const value = values.value[name];
  const wrong = refusals.value[name];
  const canReset = value?.layer === "thread" || value?.layer === "browser";
  return (
    <div class={isWide ? `${css.setting} ${css.wide}` : css.setting} data-param={name}>
      <div class={css.what}>
        <label for={id}>{label}</label>
        <p id={`${id}-help`}>{help}</p>
      </div>
      <div class={css.control}>
        {children}
        <p class={css.origin} aria-live="polite">
          {wrong ? <span class={css.wrong}>{wrong}</span> : originOf(value, modeTitle.value)}
          {canReset && !wrong && (
            <button type="button" class={css.link} aria-label={`Reset ${label}`} onClick={() => void set(name, CLEARED[name] ?? null)}>
              Reset
            </button>
          )}
        </p>
      </div>
    </div>
  );
}

function control(param: Param, id: string) {
  const value = values.value[param.key]?.value;
  switch (param.kind) {
    case "number":
      return <NumberField param={param} id={id} value={value} />;
    case "choice":
      return <Choice param={param} id={id} value={value} />;
    case "switch":
      return <Switch param={param} id={id} value={value} />;
    case "list":
      return <ListField param={param} id={id} value={value} />;
    case "text":
      return <TextField param={param} id={id} value={value} />;
  }
}

type Field<P> = { param: P; id: string; value: unknown };

function NumberField({ param, id, value }: Field<NumberParam>) {
  const { key, min, max, unset } = param;
  return (
    <input
      id={id}
      inputMode="decimal"
      aria-describedby={`${id}-help`}
      placeholder={unset}
      value={value === null || value === undefined ? "" : String(value)}
      onChange={(event) => {
        const typed = numberFrom(event.currentTarget.value, param);
        if (typed === undefined) refuse(key, `A ${param.step % 1 ? "" : "whole "}number from ${min} to ${max.toLocaleString("en")}.`);
        else void set(key, typed);
      }}
    />
  );
}

function Choice({ param, id, value }: Field<ChoiceParam>) {
  return (
    <select id={id} aria-describedby={`${id}-help`} value={String(value ?? "")} onChange={(event) => void set(param.key, choiceFrom(event.currentTarget.value))}>
      {Object.entries(param.options).map(([option, words]) => (
        <option key={option} value={option}>
          {words}
        </option>
      ))}
    </select>
  );
}

function Switch({ param, id, value }: Field<SwitchParam>) {
  return (
    <input
      id={id}
      type="checkbox"
      role="switch"
      class={param.isDangerous ? "dangerous" : undefined}
      aria-describedby={`${id}-help`}
      checked={value === true}
      onChange={(event) => void set(param.key, event.currentTarget.checked)}
    />
  );
}

function ListField({ param, id, value }: Field<ListParam>) {
  return (
    <textarea
      id={id}
      rows={2}
      aria-describedby={`${id}-help`}
      placeholder={param.placeholder}
      value={listText(value)}
      onChange={(event) => {
        const typed = listFrom(event.currentTarget.value, param);
        if (typed && "wrong" in typed) refuse(param.key, typed.wrong);
        else void set(param.key, typed);
      }}
    />
  );
}

function TextField({ param, id, value }: Field<TextParam>) {
  return (
    <textarea
      id={id}
      rows={3}
      aria-describedby={`${id}-help`}
      maxLength={param.maxLength}
      placeholder={param.placeholder}
      value={String(value ?? "")}
      onChange={(event) => void set(param.key, event.currentTarget.value.trim() || null)}
    />
  );
}
