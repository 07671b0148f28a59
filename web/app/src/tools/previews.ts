/** Finds the data that a preview is compared with. Pure. */

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
  /** A description of the older data, for the sentence "Compared with …". */
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
 * Returns the older data of the proposed object: the data that the tool reports (`data.before`), or else the data that
 * this chat last saved, or else the last refused proposal, so that people see whether their objection was followed.
 * Null if there is no older data.
 */
export function beforeOf(payload: PayloadAdded, all: readonly PayloadAdded[]): Before | null {
  if (isObject(payload.data.before)) return { object: payload.data.before, since: "the present data" };
  const { objectId } = proposalOf(payload);
  const earlier = all.slice(0, all.findIndex((other) => other.payload_id === payload.payload_id)).reverse();
  const same = earlier.filter(
    (other) => other.source === "preview" && other.payload_type === payload.payload_type && proposalOf(other).objectId === objectId,
  );
  const saved = objectId === null ? undefined : same.find((other) => other.approval === "committed");
  if (saved) return { object: proposalOf(saved).object, since: "the last data saved in this chat" };
  const refused = same[0]?.approval === "rejected" ? same[0] : undefined;
  return refused ? { object: proposalOf(refused).object, since: "the discarded proposal" } : null;
}

/** Describes the approval of a preview in words. `isSaving` says that the preview's commit tool is running. */
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
