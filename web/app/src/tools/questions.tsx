/**
 * Shows above the message box the questions that the person must answer before the run continues, and the background
 * work.
 */

import { useComputed } from "@preact/signals";

import { counted } from "./format.ts";
import { Agents, Asked } from "./later.tsx";
import { agents, atWork, ended, ideCalls, openPreviews, reasons } from "./live.ts";

export function Questions() {
  const isAsked = reasons.value.length + openPreviews.value.length + ideCalls.value.length > 0;
  const isAtWork = atWork.value.length + ended.value.length > 0 || agents.value.some((agent) => agent.status === "running");
  // Screen readers announce only this text; they read the buttons when the person moves to them.
  const told = useComputed(() => (reasons.value.length ? `${counted(reasons.value.length, "question")} waiting for your decision` : ""));
  return (
    <>
      <p class="visually-hidden" role="status">{told}</p>
      {isAtWork && <Agents />}
      {isAsked && <Asked />}
    </>
  );
}
