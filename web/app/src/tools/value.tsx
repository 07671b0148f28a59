/**
 * Shows data of a tool or a model in a view that suits the structure of the data. All values are shown as text, never
 * as markup.
 */

import { useState } from "preact/hooks";

import { isObject } from "./calls.ts";
import { clip, counted, fieldName } from "./format.ts";
import { pieces } from "./links.ts";
import { isScalar, isShortList, tableOf, type Table } from "./shape.ts";
import css from "./calls.module.css";
import bodyCss from "./call_body.module.css";
import dataCss from "./payloads.module.css";

/** More deeply nested data is shown as JSON, because nested tables are hard to read. */
const DEPTH_MAX = 3;
const ROWS_SHOWN = 20;
const TEXT_SHOWN_CHARACTERS = 2_000;

export function Value({ value, depth = 0 }: { value: unknown; depth?: number }) {
  if (isScalar(value)) return <Scalar value={value} />;
  if (isShortList(value)) return value.length ? <>{value.map(String).join(", ")}</> : <span class={css.quiet}>none</span>;
  if (depth >= DEPTH_MAX) return <LongText text={JSON.stringify(value, null, 2)} isCode />;
  if (Array.isArray(value)) {
    const table = tableOf(value);
    return table ? <TableOf table={table} /> : <ListOf items={value} depth={depth} />;
  }
  return isObject(value) ? <Fields data={value} depth={depth} /> : <>{String(value)}</>;
}

export function Fields({ data, depth = 0 }: { data: Record<string, unknown>; depth?: number }) {
  const entries = Object.entries(data);
  if (!entries.length) return <span class={css.quiet}>nothing</span>;
  return (
    <dl class={dataCss.fields}>
      {entries.map(([key, value]) => (
        <div key={key} class={isScalar(value) || isShortList(value) ? dataCss.field : `${dataCss.field} ${dataCss.wide}`}>
          <dt>{fieldName(key)}</dt>
          <dd>
            <Value value={value} depth={depth + 1} />
          </dd>
        </div>
      ))}
    </dl>
  );
}

function Scalar({ value }: { value: string | number | boolean | null }) {
  if (value === null || value === "") return <span class={css.quiet}>–</span>;
  if (typeof value === "boolean") return <>{value ? "yes" : "no"}</>;
  // Shows a number as it is written, without separators, because it may be an id.
  if (typeof value === "number") return <>{String(value)}</>;
  return <LongText text={value} />;
}

function TableOf({ table }: { table: Table }) {
  const [isWhole, setWhole] = useState(false);
  const rows = isWhole ? table.rows : table.rows.slice(0, ROWS_SHOWN);
  return (
    <div class={dataCss.tableBox} tabIndex={0} role="group" aria-label={counted(table.rows.length, "row")}>
      <table>
        <thead>
          <tr>
            {table.columns.map((column) => (
              <th key={column} scope="col">{fieldName(column)}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, at) => (
            <tr key={at}>
              {table.columns.map((column) => (
                <td key={column} class={typeof row[column] === "number" ? dataCss.number : undefined}>
                  <Value value={row[column] ?? null} depth={DEPTH_MAX} />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length < table.rows.length && <ShowAll label={`Show all ${table.rows.length} rows`} onClick={() => setWhole(true)} />}
    </div>
  );
}

function ListOf({ items, depth }: { items: readonly unknown[]; depth: number }) {
  const [isWhole, setWhole] = useState(false);
  if (!items.length) return <span class={css.quiet}>none</span>;
  const shown = isWhole ? items : items.slice(0, ROWS_SHOWN);
  return (
    <>
      <ul class={dataCss.values}>
        {shown.map((item, at) => (
          <li key={at}>
            <Value value={item} depth={depth + 1} />
          </li>
        ))}
      </ul>
      {shown.length < items.length && <ShowAll label={`Show all ${items.length}`} onClick={() => setWhole(true)} />}
    </>
  );
}

/** Shows a text with its addresses as links; a long text is cut until the person asks for all of it. */
export function LongText({ text, isCode, most = TEXT_SHOWN_CHARACTERS }: { text: string; isCode?: boolean; most?: number }) {
  const [isWhole, setWhole] = useState(false);
  const shown = isWhole ? text : clip(text, most);
  const body = isCode ? shown : <Linked text={shown} />;
  return (
    <>
      {isCode ? <pre class={bodyCss.code} tabIndex={0}>{body}</pre> : <span class={bodyCss.plain}>{body}</span>}
      {shown.length < text.length && <ShowAll label={`Show all ${text.length.toLocaleString("en")} characters`} onClick={() => setWhole(true)} />}
    </>
  );
}

function Linked({ text }: { text: string }) {
  return (
    <>
      {pieces(text).map((piece, at) =>
        typeof piece === "string" ? (
          piece
        ) : (
          <a key={at} href={piece.href} target="_blank" rel="noopener noreferrer nofollow">{piece.href}</a>
        ),
      )}
    </>
  );
}

function ShowAll({ label, onClick }: { label: string; onClick: () => void }) {
  return <button type="button" class={bodyCss.showAll} data-unfolds onClick={onClick}>{label}</button>;
}
