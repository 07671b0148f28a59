/** Shows how a field of an object has changed: short values side by side, and longer values line by line. */

import { useMemo } from "preact/hooks";

import bodyCss from "./call_body.module.css";
import { comparable, diffLines, folded, type Change } from "./diff.ts";
import dataCss from "./payloads.module.css";
import { fieldName } from "./format.ts";
import { isScalar } from "./shape.ts";
import { Value } from "./value.tsx";

export function ChangeOf({ change }: { change: Change }) {
  const { field, kind, before, after } = change;
  const isShort = [before, after].every((value) => value === undefined || (isScalar(value) && !String(value).includes("\n") && String(value).length <= 80));
  return (
    <div class={dataCss.change}>
      <h5>{fieldName(field)}</h5>
      {isShort ? (
        <p>
          {kind !== "added" && <del><Value value={before ?? null} /></del>} {kind !== "removed" && <ins><Value value={after ?? null} /></ins>}
        </p>
      ) : (
        <Lines before={comparable(before ?? "")} after={comparable(after ?? "")} />
      )}
    </div>
  );
}

const SIGNS = { same: " ", added: "+", removed: "-" };

/** Shows the change of a file, or a new file if there is nothing before. */
export function FileChange({ path, before, after }: { path: string; before: string; after: string }) {
  return (
    <div class={dataCss.change}>
      {path && <h5>{path}</h5>}
      <Lines before={before} after={after} />
    </div>
  );
}

function Lines({ before, after }: { before: string; after: string }) {
  const lines = useMemo(() => folded(diffLines(before, after)), [before, after]);
  return (
    <pre class={`${bodyCss.code} ${dataCss.diff}`} tabIndex={0}>
      {lines.map((line, at) =>
        line ? (
          <span key={at} data-kind={line.kind}>{`${SIGNS[line.kind]} ${line.text}\n`}</span>
        ) : (
          <span key={at} class={dataCss.leftOut}>{"⋯\n"}</span>
        ),
      )}
    </pre>
  );
}
