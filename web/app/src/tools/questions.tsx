/** Above the composer, in every tab: what a person must decide before the work goes on, and what works meanwhile. */

import { useComputed } from "@preact/signals";

import { counted } from "./format.ts";
import { Agents, Asked } from "./later.tsx";
import { agents, atWork, ended, ideCalls, openPreviews, reasons } from "./live.ts";

export function Questions() {
  const isAsked = reasons.value.length + openPreviews.value.length + ideCalls.value.length > 0;
  const isAtWork = atWork.value.length + ended.value.length > 0 || agents.value.some((agent) => agent.status === "running");
  // The words alone, so that a screen reader is told once and reads the rest when it comes there.
  const told = useComputed(() => (reasons.value.length ? `${counted(reasons.value.length, "question")} waiting for your decision` : ""));
  return (
    <>
      <p class="visually-hidden" role="status">{told}</p>
      {isAtWork && <Agents />}
      {isAsked && <Asked />}
    </>
  );
}
