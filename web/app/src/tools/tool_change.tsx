/**
 * Shows why a tool that was always allowed asks again, with the difference between the allowed and the present tool.
 */

import type { ToolChange } from "threadcast-client";

import css from "./calls.module.css";
import { ChangeOf } from "./changes.tsx";
import { differences } from "./definitions.ts";
import dataCss from "./payloads.module.css";
import asksCss from "./questions.module.css";

const WHY: Record<string, string> = {
  changed: "This tool is not what you allowed: its definition has changed.",
  new: "This tool appeared after you allowed all tools of its server.",
  unrecorded: "You allowed this tool in an earlier version, which did not record what the tool was. Please decide once more.",
};

export function ToolChanged({ change }: { change: ToolChange }) {
  const { before, now } = change;
  const changes = now ? differences(before ?? null, now) : [];
  return (
    <div class={`${asksCss.questionInput} ${dataCss.changes}`} tabIndex={0} role="group" aria-label="What has changed">
      <p>{WHY[change.kind] ?? WHY["changed"]}</p>
      {change.kind === "changed" && !before && <p class={css.quiet}>The earlier definition was too long to keep.</p>}
      {!now && <p class={css.quiet}>The present definition is too long to show.</p>}
      {changes.map((one) => (
        <ChangeOf key={one.field} change={one} />
      ))}
    </div>
  );
}
