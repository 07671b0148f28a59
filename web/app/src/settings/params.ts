/**
 * Lists the parameters of a chat with the labels, explanations and limits that people see (PROTOCOL §16). Pure. The
 * server checks the limits; the page uses them only to help the person type.
 */

import type { ParamValue } from "threadcast-client";

interface Common {
  /** Whether only some providers support the parameter (PROTOCOL §16). */
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
  /** The text for an empty field. */
  readonly unset: string;
}

export interface ChoiceParam extends Common {
  readonly kind: "choice";
  /** The label of each value; "" stands for "not set in this chat". */
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
    help: "Added to the mode's own instructions for every answer in this chat.",
    // 32 kB of ASCII; the server counts bytes.
    maxLength: 32_768,
    placeholder: "For instance: answer briefly, in French.",
  },
  {
    kind: "number",
    key: "temperature",
    label: "Temperature",
    help: "How freely the model chooses words: at 0 it takes the most likely ones, at 2 it varies most.",
    min: 0,
    max: 2,
    step: 0.1,
    unset: "the model's own",
  },
  {
    kind: "number",
    key: "max_tokens",
    label: "Longest answer",
    help: "The most tokens that one model call may write.",
    min: 1,
    max: 1_000_000,
    step: 1,
    unset: "the model's own",
  },
  {
    kind: "choice",
    key: "reasoning",
    label: "Reasoning",
    help: "Whether the model's reasoning is shown, hidden, or switched off.",
    options: { "": "as set elsewhere", stream: "shown as it comes", log: "not shown, kept for diagnosis", off: "off" },
  },
  {
    kind: "choice",
    key: "reasoning_effort",
    label: "Effort",
    help: "How long a reasoning model thinks before it answers.",
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
    help: "The most tokens for reasoning, for models that take a number instead of an effort.",
    min: 0,
    max: 1_000_000,
    step: 1,
    unset: "the model's own",
  },
];

export const MORE: readonly Param[] = [
  { kind: "number", key: "top_p", label: "Top p", help: "The model chooses from the most likely words whose probabilities add up to this share.", min: 0, max: 1, step: 0.05, unset: "the model's own" },
  { kind: "number", key: "frequency_penalty", label: "Frequency penalty", help: "Positive numbers make words less likely the more often they have been used.", min: -2, max: 2, step: 0.1, unset: "the model's own" },
  { kind: "number", key: "presence_penalty", label: "Presence penalty", help: "Positive numbers make words less likely once they have been used.", min: -2, max: 2, step: 0.1, unset: "the model's own" },
  { kind: "number", isSampler: true, key: "top_k", label: "Top k", help: "The model chooses from this number of the most likely words; 0 means all.", min: 0, max: 100_000, step: 1, unset: "the model's own" },
  { kind: "number", isSampler: true, key: "min_p", label: "Min p", help: "Leaves out words that are less likely than this share of the most likely word.", min: 0, max: 1, step: 0.01, unset: "the model's own" },
  { kind: "number", isSampler: true, key: "repetition_penalty", label: "Repetition penalty", help: "Above 1 the model avoids words that are already in the text, below 1 it prefers them.", min: 0.01, max: 2, step: 0.01, unset: "the model's own" },
  { kind: "number", isSampler: true, key: "seed", label: "Seed", help: "The same number gives the same answer to the same chat, if the provider supports that.", min: 0, max: 2_147_483_647, step: 1, unset: "another one each time" },
  { kind: "list", isSampler: true, key: "stop", label: "Stop at", help: "The answer ends before the first of these texts. Write one on each line, at most 4; \\n is a line break.", maxCount: 4, maxLength: 256, placeholder: "nothing" },
  { kind: "number", key: "context_tokens_cap", label: "History sent", help: "The most tokens of the chat that are sent to the model.", min: 1_000, max: 10_000_000, step: 1_000, unset: "all that fits" },
  { kind: "number", key: "max_history_messages", label: "Messages sent", help: "How many of the last messages are sent to the model; 0 means all.", min: 0, max: 10_000, step: 1, unset: "all that fit" },
  { kind: "choice", key: "on_abort", label: "When you stop an answer", help: "Whether the unfinished answer is kept.", options: { "": "as set elsewhere", keep: "it is kept", discard: "it is thrown away" } },
  { kind: "switch", key: "merge_queued", label: "Answer waiting messages together", help: "Waiting messages get one answer instead of one each." },
];

export const TOOLS: readonly Param[] = [
  { kind: "number", key: "max_rounds", label: "Rounds of tools", help: "How many times the model may call tools before it must answer.", min: 1, max: 100, step: 1, unset: "the mode's own" },
  { kind: "choice", key: "on_limit", label: "At that limit", help: "What happens when the model has used all rounds.", options: { "": "as set elsewhere", stop: "stop", summarize: "let it sum up", ask: "ask me" } },
  { kind: "choice", key: "parallel_tool_calls", label: "Several tools at once", help: "Whether the model may call more than one tool in a round.", options: { "": "as the model does", true: "yes", false: "no" } },
];

export const APPROVALS: readonly Param[] = [
  { kind: "switch", key: "auto_approve_editing_tools", label: "Run editing tools without asking", help: "The server decides which tools are editing tools." },
  { kind: "switch", key: "auto_approve_dangerous_commands", label: "Run dangerous commands without asking", help: "The server decides which commands are dangerous.", isDangerous: true },
  { kind: "switch", key: "autonomous_no_confirm", label: "Run everything without asking", help: "Every tool runs as soon as the model calls it, also in chats that tools start.", isDangerous: true },
  { kind: "choice", key: "on_deny", label: "When you deny a call", help: "Whether the model continues after it was told.", options: { "": "as set elsewhere", continue: "the model goes on", stop: "the answer ends" } },
];

/** The values that reset parameters which every chat has (PROTOCOL §8); null resets all others. */
export const CLEARED: Readonly<Record<string, unknown>> = {
  model: "",
  mode: "agent",
  auto_approve_editing_tools: false,
  auto_approve_dangerous_commands: false,
  autonomous_no_confirm: false,
};

/** A value and the layer that it comes from. The layer `browser` holds the choices with which a new chat will begin. */
export type Shown = Omit<ParamValue, "layer"> & { readonly layer: ParamValue["layer"] | "browser" };

/** Describes where a value comes from. `mode` is the title of the chat's mode. */
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

/**
 * Parses a typed number. Returns null for an empty text, and undefined for a text that is no number within the limits.
 */
export function numberFrom(text: string, { min, max, step }: NumberParam): number | null | undefined {
  if (!text.trim()) return null;
  const value = Number(text.replace(",", "."));
  const isWhole = step % 1 !== 0 || Number.isInteger(value);
  return Number.isFinite(value) && value >= min && value <= max && isWhole ? value : undefined;
}

/**
 * Parses a typed list of texts, one on each line. Returns null for an empty list, and for an invalid list an object
 * whose `wrong` says what is wrong with it.
 */
export function listFrom(text: string, { maxCount, maxLength }: ListParam): readonly string[] | null | { readonly wrong: string } {
  const found = text.split("\n").filter((line) => line !== "").map((line) => line.replaceAll("\\n", "\n"));
  if (found.length > maxCount) return { wrong: `Write at most ${maxCount} lines.` };
  if (found.some((each) => [...each].length > maxLength)) return { wrong: `A line may have at most ${maxLength} characters.` };
  return found.length ? found : null;
}

/** Formats a list of texts for editing, one on each line. */
export function listText(value: unknown): string {
  return Array.isArray(value) ? value.map((each) => String(each).replaceAll("\n", "\\n")).join("\n") : "";
}

/**
 * Returns why a sampler has no effect, or "". `takes` lists the samplers of the chat's model, `any` the samplers of all
 * models.
 */
export function samplerNote(key: string, model: string, takes: readonly string[], any: readonly string[]): string {
  if (!any.includes(key)) return "No model of this server supports this.";
  return takes.includes(key) ? "" : `The model ${model} does not support this.`;
}

/** Returns the value to send for a chosen option; null resets the parameter to the mode's or the server's value. */
export function choiceFrom(option: string): string | boolean | null {
  return option === "" ? null : option === "true" ? true : option === "false" ? false : option;
}

/** Returns the list with `entry` added at its end if `isIn` is true, and otherwise without `entry`. */
export function toggled(list: readonly string[] | null | undefined, entry: string, isIn: boolean): string[] {
  const others = (list ?? []).filter((other) => other !== entry);
  return isIn ? [...others, entry] : others;
}
