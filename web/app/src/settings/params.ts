/**
 * The parameters of a chat as people set them: what each is called, what it does, and within which bounds (PROTOCOL
 * §16). Pure; the server holds the bounds, here they help to type.
 */

import type { ParamValue } from "threadcast-client";

interface Common {
  /** Only some providers take it (PROTOCOL §16). */
  readonly isSampler?: boolean;
  readonly key: string;
  readonly label: string;
  readonly help: string;
}

export interface NumberParam extends Common {
  readonly kind: "number";
  readonly min: number;
  readonly max: number;
  readonly step: number;
  /** What an empty field means. */
  readonly unset: string;
}

export interface ChoiceParam extends Common {
  readonly kind: "choice";
  /** By value; "" is "not said here". */
  readonly options: Readonly<Record<string, string>>;
}

export interface SwitchParam extends Common {
  readonly kind: "switch";
  readonly isDangerous?: boolean;
}

export interface TextParam extends Common {
  readonly kind: "text";
  readonly maxLength: number;
  readonly placeholder: string;
}

/** Several texts, one on each line; `\\n` is a line break within a text. */
export interface ListParam extends Common {
  readonly kind: "list";
  readonly maxCount: number;
  readonly maxLength: number;
  readonly placeholder: string;
}

export type Param = NumberParam | ChoiceParam | SwitchParam | TextParam | ListParam;

export const ANSWERS: readonly Param[] = [
  {
    kind: "text",
    key: "custom_instructions",
    label: "Instructions",
    help: "Added to what the mode tells the model, in every answer of this chat.",
    // 32 kB; characters of two bytes and more are the server's to count.
    maxLength: 32_768,
    placeholder: "For instance: answer briefly, in French.",
  },
  {
    kind: "number",
    key: "temperature",
    label: "Temperature",
    help: "How freely the model chooses its words: 0 is the most likely ones, 2 the wildest.",
    min: 0,
    max: 2,
    step: 0.1,
    unset: "the model's own",
  },
  {
    kind: "number",
    key: "max_tokens",
    label: "Longest answer",
    help: "In tokens, of one model call.",
    min: 1,
    max: 1_000_000,
    step: 1,
    unset: "the model's own",
  },
  {
    kind: "choice",
    key: "reasoning",
    label: "Reasoning",
    help: "Whether what a model thinks before it answers is shown, kept out of sight, or not asked for.",
    options: { "": "as set elsewhere", stream: "shown as it comes", log: "not shown, kept for diagnosis", off: "off" },
  },
  {
    kind: "choice",
    key: "reasoning_effort",
    label: "Effort",
    help: "How much a model that reasons thinks before it answers.",
    options: {
      "": "as set elsewhere",
      none: "none",
      minimal: "minimal",
      low: "low",
      medium: "medium",
      high: "high",
      xhigh: "very high",
      max: "as much as it can",
    },
  },
  {
    kind: "number",
    key: "thinking_budget",
    label: "Thinking budget",
    help: "In tokens, for models that take a number instead of an effort.",
    min: 0,
    max: 1_000_000,
    step: 1,
    unset: "the model's own",
  },
];

export const MORE: readonly Param[] = [
  { kind: "number", key: "top_p", label: "Top p", help: "Only the likeliest words that make up this share are considered.", min: 0, max: 1, step: 0.05, unset: "the model's own" },
  { kind: "number", key: "frequency_penalty", label: "Frequency penalty", help: "Against words that were said often.", min: -2, max: 2, step: 0.1, unset: "the model's own" },
  { kind: "number", key: "presence_penalty", label: "Presence penalty", help: "Against words that were said at all.", min: -2, max: 2, step: 0.1, unset: "the model's own" },
  { kind: "number", isSampler: true, key: "top_k", label: "Top k", help: "Only so many of the likeliest words are considered; 0 is all.", min: 0, max: 100_000, step: 1, unset: "the model's own" },
  { kind: "number", isSampler: true, key: "min_p", label: "Min p", help: "Words that are less likely than this share of the likeliest one are left out.", min: 0, max: 1, step: 0.01, unset: "the model's own" },
  { kind: "number", isSampler: true, key: "repetition_penalty", label: "Repetition penalty", help: "Against words that stand in the text already: above 1 avoids them, below 1 seeks them.", min: 0.01, max: 2, step: 0.01, unset: "the model's own" },
  { kind: "number", isSampler: true, key: "seed", label: "Seed", help: "The same number, with the same chat, gives the same answer, as far as the provider can.", min: 0, max: 2_147_483_647, step: 1, unset: "another one each time" },
  { kind: "list", isSampler: true, key: "stop", label: "Stop at", help: "The answer ends before the first of these texts. One on each line, at most 4; \\n is a line break.", maxCount: 4, maxLength: 256, placeholder: "nothing" },
  { kind: "number", key: "context_tokens_cap", label: "History sent", help: "In tokens: the model is sent no more of the chat than this.", min: 1_000, max: 10_000_000, step: 1_000, unset: "all that fits" },
  { kind: "number", key: "max_history_messages", label: "Messages sent", help: "The model is sent so many of the last ones; 0 is all.", min: 0, max: 10_000, step: 1, unset: "all that fit" },
  { kind: "choice", key: "on_abort", label: "When you stop an answer", help: "What becomes of what was written so far.", options: { "": "as set elsewhere", keep: "it is kept", discard: "it is thrown away" } },
  { kind: "switch", key: "merge_queued", label: "Waiting messages as one", help: "Messages that wait behind each other are answered together." },
];

export const TOOLS: readonly Param[] = [
  { kind: "number", key: "max_rounds", label: "Rounds of tools", help: "How often the model may call tools before it must answer.", min: 1, max: 100, step: 1, unset: "the mode's own" },
  { kind: "choice", key: "on_limit", label: "At that limit", help: "What happens when the rounds are used up.", options: { "": "as set elsewhere", stop: "stop", summarize: "let it sum up", ask: "ask me" } },
  { kind: "choice", key: "parallel_tool_calls", label: "Several calls at once", help: "Whether the model may call more than one tool in a round.", options: { "": "as the model does", true: "yes", false: "no" } },
];

export const APPROVALS: readonly Param[] = [
  { kind: "switch", key: "auto_approve_editing_tools", label: "Tools that edit run without asking", help: "Those that the server calls editing tools." },
  { kind: "switch", key: "auto_approve_dangerous_commands", label: "Dangerous commands run without asking", help: "Those that the server calls dangerous.", isDangerous: true },
  { kind: "switch", key: "autonomous_no_confirm", label: "Nothing asks", help: "Every tool runs as the model calls it, also in the chats that tools begin.", isDangerous: true },
  { kind: "choice", key: "on_deny", label: "When you refuse a call", help: "Whether the model is told and goes on.", options: { "": "as set elsewhere", continue: "the model goes on", stop: "the answer ends" } },
];

/** What clears the parameters that a chat always has (PROTOCOL §8); null clears all others. */
export const CLEARED: Readonly<Record<string, unknown>> = {
  model: "",
  mode: "agent",
  auto_approve_editing_tools: false,
  auto_approve_dangerous_commands: false,
  autonomous_no_confirm: false,
};

/** A value and the layer that it comes from; `browser`: what a chat that has not begun will begin with. */
export type Shown = Omit<ParamValue, "layer"> & { readonly layer: ParamValue["layer"] | "browser" };

/** Where a value comes from, in words. `mode` is what the chat's mode is called. */
export function originOf(param: Shown | undefined, mode: string): string {
  switch (param?.layer) {
    case "browser":
      return "as in your last chat";
    case "thread":
      return "set in this chat";
    case "profile":
      return `from the mode ${mode}`;
    case "command":
      return "set by the message that is being answered";
    default:
      return "the server's default";
  }
}

/** What a person typed as the value of a number; null clears it, undefined is no number within the bounds. */
export function numberFrom(text: string, { min, max, step }: NumberParam): number | null | undefined {
  if (!text.trim()) return null;
  const value = Number(text.replace(",", "."));
  const isWhole = step % 1 !== 0 || Number.isInteger(value);
  return Number.isFinite(value) && value >= min && value <= max && isWhole ? value : undefined;
}

/** Parses what was typed as a list of texts: null clears the list; a string says what is wrong. */
export function listFrom(text: string, { maxCount, maxLength }: ListParam): readonly string[] | null | { readonly wrong: string } {
  const found = text.split("\n").filter((line) => line !== "").map((line) => line.replaceAll("\\n", "\n"));
  if (found.length > maxCount) return { wrong: `At most ${maxCount} of them.` };
  if (found.some((each) => [...each].length > maxLength)) return { wrong: `At most ${maxLength} characters each.` };
  return found.length ? found : null;
}

/** Formats a list as people type it. */
export function listText(value: unknown): string {
  return Array.isArray(value) ? value.map((each) => String(each).replaceAll("\n", "\\n")).join("\n") : "";
}

/** Why a sampler has no effect, or ""; `takes`: the samplers of the chat's model, `any`: those of all models. */
export function samplerNote(key: string, model: string, takes: readonly string[], any: readonly string[]): string {
  if (!any.includes(key)) return "No model of this server takes it.";
  return takes.includes(key) ? "" : `The model ${model} does not take it.`;
}

/** What was chosen as it goes over the wire; null leaves it to the layers below. */
export function choiceFrom(option: string): string | boolean | null {
  return option === "" ? null : option === "true" ? true : option === "false" ? false : option;
}

/** The list with the entry at its end, or without it. */
export function toggled(list: readonly string[] | null | undefined, entry: string, isIn: boolean): string[] {
  const others = (list ?? []).filter((other) => other !== entry);
  return isIn ? [...others, entry] : others;
}
