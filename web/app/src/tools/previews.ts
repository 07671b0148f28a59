/** What a preview would change, as far as the chat knows what was there before. Pure. */

import type { JsonObject, PayloadAdded } from "threadcast-client";

import { isObject } from "./calls.ts";

export interface Proposal {
  readonly description: string;
  readonly object: JsonObject;
  readonly isUpdate: boolean;
  readonly objectId: string | null;
}

export interface Before {
  readonly object: JsonObject;
  /** In what words the two are compared. */
  readonly since: string;
}

export function proposalOf(payload: PayloadAdded): Proposal {
  const { description, object, is_update, object_id } = payload.data;
  return {
    description: typeof description === "string" && description ? description : payload.summary,
    object: isObject(object) ? object : payload.data,
    isUpdate: is_update === true,
    objectId: typeof object_id === "string" || typeof object_id === "number" ? String(object_id) : null,
  };
}

/**
 * What the proposal is compared with: the tool's own word (`data.before`), else what this chat saved of the same object
 * last, else the last proposal that was refused, since people want to see what has become of their objection.
 */
export function beforeOf(payload: PayloadAdded, all: readonly PayloadAdded[]): Before | null {
  if (isObject(payload.data.before)) return { object: payload.data.before, since: "what is there now" };
  const { objectId } = proposalOf(payload);
  const earlier = all.slice(0, all.findIndex((other) => other.payload_id === payload.payload_id)).reverse();
  const same = earlier.filter(
    (other) => other.source === "preview" && other.payload_type === payload.payload_type && proposalOf(other).objectId === objectId,
  );
  const saved = objectId === null ? undefined : same.find((other) => other.approval === "committed");
  if (saved) return { object: proposalOf(saved).object, since: "what was saved before in this chat" };
  const refused = same[0]?.approval === "rejected" ? same[0] : undefined;
  return refused ? { object: proposalOf(refused).object, since: "the proposal that was discarded" } : null;
}

/** How a preview's approval is said; `isSaving`: its commit tool runs now. */
export function approvalWords(approval: string | null | undefined, isSaving: boolean): { text: string; tone: "wait" | "good" | "bad" | "quiet" } {
  switch (approval) {
    case "pending":
      return { text: "waiting for your decision", tone: "wait" };
    case "rejected":
      return { text: "discarded", tone: "quiet" };
    case "accepted":
      return isSaving ? { text: "applying…", tone: "wait" } : { text: "accepted", tone: "good" };
    case "committed":
      return { text: "applied", tone: "good" };
    case "commit_failed":
      return { text: "could not be applied", tone: "bad" };
    case "outcome_unknown":
      return { text: "may or may not have been applied", tone: "bad" };
    default:
      return { text: "", tone: "quiet" };
  }
}
