/** Describes the steps of a durable agent's run in words, and finds where a chat shows them. Pure. */

import type { AgentStep, Message } from "threadcast-client";

import { clockOf } from "../drawer/play.ts";
import { duration } from "../ui/figures.ts";
import { counted } from "./format.ts";

/** The number of steps that clients keep (PROTOCOL §8). */
const STEPS_KEPT = 100;

/** The maximum difference between the clocks of a web process and a worker. */
const CLOCKS_DIFFER_MS = 1_000;

/** The states that the sign of a step shows. A step is `stopped` if its run ended before the step had ended. */
export type Sign = "running" | "waiting" | "done" | "failed" | "stopped";

export function signOf({ status }: AgentStep, isRunOpen: boolean): Sign {
  if (status === "done") return "done";
  if (status === "failed" || status === "unknown") return "failed";
  if (status === "cancelled" || !isRunOpen) return "stopped";
  return status === "waiting" ? "waiting" : "running";
}

/** Returns the step's name, such as "fetch page", "Sleeps until 08:00", "Slept" or, of a broken sleep, "Sleep". */
export function nameOf(step: AgentStep, sign: Sign, nowMs: number): string {
  if (step.kind !== "sleep") return step.name || step.kind;
  if (sign !== "running" && sign !== "waiting") return sign === "done" ? "Slept" : "Sleep";
  return step.until == null ? "Sleeps" : `Sleeps until ${clockOf(step.until, nowMs)}`;
}

/**
 * Returns the text after the name, which says why a step failed or waits; "" for a step that needs no text beside its
 * sign, and for a sub-chat, which shows its own reason.
 */
export function noteOf(step: AgentStep, sign: Sign): string {
  if (sign === "failed") return step.error || (step.status === "unknown" ? "outcome unknown" : "failed");
  if (sign === "stopped") return step.status === "cancelled" ? "cancelled" : "not finished";
  if (sign !== "waiting" || step.kind === "sleep" || step.subchat_id) return "";
  return step.kind === "ask" ? "waits for an answer" : "waits";
}

/** Returns the words for a screen reader, such as "make plan, done, 1.2 s". */
export function said(step: AgentStep, sign: Sign, nowMs: number): string {
  const time = step.elapsed_ms == null ? "" : duration(step.elapsed_ms);
  return [nameOf(step, sign, nowMs), noteOf(step, sign) || (step.kind === "sleep" ? "" : sign), time].filter(Boolean).join(", ");
}

/** Returns one line for all steps: "7 steps · 12 s", with the number of failed steps. Only an ended run has a time. */
export function summaryOf(steps: readonly AgentStep[], isRunOpen: boolean): string {
  const failed = steps.filter((step) => signOf(step, isRunOpen) === "failed").length;
  const ends = steps.flatMap((step) => (step.elapsed_ms == null ? [] : [step.started_at + step.elapsed_ms]));
  const ms = Math.max(...ends) - Math.min(...steps.map((step) => step.started_at));
  return [
    steps.length < STEPS_KEPT ? counted(steps.length, "step") : `the newest ${STEPS_KEPT} steps`,
    failed && `${failed} failed`,
    !isRunOpen && ends.length && duration(ms),
  ].filter(Boolean).join(" · ");
}

/**
 * Returns the id of the person's message that the run of these steps answers; null if it is not on the path.
 *
 * Steps name no message. The function returns the person's last message that was sent before the first step began. It
 * ignores messages after an answer that was begun later than that step, because a message that waited in the queue may
 * be older than the step.
 */
export function askedIn(path: readonly string[], nodes: ReadonlyMap<string, Message>, steps: readonly AgentStep[]): string | null {
  const begun = Math.min(...steps.map((step) => step.started_at));
  let found: string | null = null;
  for (const id of path) {
    const { role, hidden, created_at } = nodes.get(id) ?? {};
    if (hidden || created_at == null) continue;
    if (role === "user" && created_at <= begun + CLOCKS_DIFFER_MS) found = id;
    else if (role === "assistant" && created_at > begun) break;
  }
  return found;
}
