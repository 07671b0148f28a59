/**
 * Turns the JSON Schema of a question into the fields of a form, and the filled-in fields into the answer.
 *
 * Pure. Only flat objects get a form: their fields are texts, numbers, yes or no, and choices. MCP servers ask for
 * such objects.
 * The server checks the answer against the schema, so the form only helps to fill it in.
 */

import type { JsonObject } from "threadcast-client";

import { isObject } from "./calls.ts";
import { fieldName } from "./format.ts";

export type FieldKind = "text" | "number" | "boolean" | "choice" | "choices";

export interface Choice {
  readonly value: unknown;
  readonly label: string;
}

export interface Field {
  readonly name: string;
  readonly label: string;
  readonly description: string;
  readonly kind: FieldKind;
  readonly isRequired: boolean;
  readonly choices: readonly Choice[];
  /** The value of a text or number, whether a box is ticked, or the positions of the chosen options. */
  readonly initial: Filled;
  /** Attributes of the input. */
  readonly input: { type: InputType; min?: number; max?: number; step?: string; minLength?: number; maxLength?: number };
}

type InputType = "text" | "number" | "email" | "url" | "date";

export type Filled = string | boolean | readonly number[];

/** A form with more fields would be longer than a person fills in here; such a question gets a JSON field. */
const FIELDS_MAX = 50;

const INPUT_TYPES: Record<string, InputType> = { email: "email", uri: "url", date: "date" };

/** Returns the fields of a flat object; null for any other schema. */
export function fieldsOf(schema: JsonObject): readonly Field[] | null {
  const properties = schema.properties ?? {};
  if (schema.type !== "object" || !isObject(properties) || Object.keys(properties).length > FIELDS_MAX) return null;
  if (OTHERS.some((key) => key in schema)) return null;
  const required = Array.isArray(schema.required) ? schema.required : [];
  const fields: Field[] = [];
  for (const [name, property] of Object.entries(properties)) {
    const field = isObject(property) ? fieldOf(name, property, required.includes(name)) : null;
    if (!field) return null;
    fields.push(field);
  }
  return fields;
}

/** Keywords of an object that a form cannot express. */
const OTHERS = ["$ref", "allOf", "anyOf", "oneOf", "not", "if", "dependentRequired", "dependentSchemas", "minProperties"];

function fieldOf(name: string, property: JsonObject, isRequired: boolean): Field | null {
  const base = {
    name,
    label: typeof property.title === "string" && property.title ? property.title : fieldName(name),
    description: typeof property.description === "string" ? property.description : "",
    isRequired,
    choices: [],
    input: { type: "text" as const },
  };
  const given = property.default;
  const choices = choicesOf(property);
  if (choices) {
    const at = choices.findIndex((choice) => choice.value === given);
    return { ...base, kind: "choice", choices, initial: at < 0 ? [] : [at] };
  }
  switch (property.type) {
    case "boolean":
      return { ...base, kind: "boolean", initial: given === true };
    case "string": {
      const type = INPUT_TYPES[String(property.format)] ?? "text";
      const input = { type, ...bounds(property, { minLength: "minLength", maxLength: "maxLength" }) };
      return { ...base, kind: "text", input, initial: typeof given === "string" ? given : "" };
    }
    case "number":
    case "integer": {
      const step = property.type === "integer" ? "1" : "any";
      const input = { type: "number" as const, step, ...bounds(property, { minimum: "min", maximum: "max" }) };
      return { ...base, kind: "number", input, initial: typeof given === "number" ? String(given) : "" };
    }
    case "array": {
      const inner = isObject(property.items) ? choicesOf(property.items) : null;
      if (!inner) return null;
      const all = Array.isArray(given) ? given : [];
      const initial = inner.flatMap((choice, at) => (all.includes(choice.value) ? [at] : []));
      return { ...base, kind: "choices", choices: inner, initial };
    }
    default:
      return null;
  }
}

/** Returns the choices of an `enum`, with the older `enumNames`, or of a list of constants with titles. */
function choicesOf(property: JsonObject): readonly Choice[] | null {
  if (Array.isArray(property.enum)) {
    const names = Array.isArray(property.enumNames) ? property.enumNames : [];
    return property.enum.map((value, at) => ({ value, label: String(names[at] ?? value) }));
  }
  const listed = property.oneOf ?? property.anyOf;
  if (!Array.isArray(listed) || !listed.every((each) => isObject(each) && "const" in each)) return null;
  return listed.map((each: JsonObject) => ({ value: each.const, label: String(each.title ?? each.const) }));
}

function bounds(property: JsonObject, names: Record<string, string>): Record<string, number> {
  const found: Record<string, number> = {};
  for (const [key, attribute] of Object.entries(names)) {
    const value = property[key];
    if (typeof value === "number") found[attribute] = value;
  }
  return found;
}

/** Returns the answer. An empty field that is not required is left out. */
export function answerOf(fields: readonly Field[], filled: Readonly<Record<string, Filled>>): JsonObject {
  const answer: JsonObject = {};
  for (const field of fields) {
    const value = filled[field.name] ?? field.initial;
    if (typeof value === "boolean") answer[field.name] = value;
    else if (typeof value !== "string") {
      const chosen = value.map((at) => field.choices[at]?.value);
      if (field.kind === "choices") {
        if (chosen.length || field.isRequired) answer[field.name] = chosen;
      } else if (chosen.length) answer[field.name] = chosen[0];
    } else if (field.kind === "number") {
      if (value.trim()) answer[field.name] = Number(value);
    } else if (value || field.isRequired) answer[field.name] = value;
  }
  return answer;
}
