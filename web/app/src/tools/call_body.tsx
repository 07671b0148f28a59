/** Shows an unfolded call: its arguments, its progress and its result. */

import { textOf, type IdeCall, type Message, type ToolCall, type ToolStatus } from "threadcast-client";

import { Attachments } from "./attachment.tsx";
import { inputOf, isWithheld, type CallState } from "./calls.ts";
import { growingJson, prettyJson } from "./format.ts";
import { Fields, LongText } from "./value.tsx";
import css from "./calls.module.css";
import bodyCss from "./call_body.module.css";

export function CallBody({ call, status, result, state, ideCall, isDraft }: {
  call: ToolCall;
  status: ToolStatus | undefined;
  result: Message | undefined;
  state: CallState;
  ideCall: IdeCall | undefined;
  isDraft: boolean;
}) {
  const input = ideCall?.args ?? inputOf(call, status);
  const isEmpty = typeof input === "object" && !Object.keys(input).length;
  return (
    <div class={bodyCss.callBody}>
      <h4>Arguments</h4>
      {isEmpty ? (
        <p class={css.quiet}>none, or hidden</p>
      ) : (
        <LongText isCode text={typeof input === "string" || isDraft ? growingJson(call.function.arguments) : JSON.stringify(input, null, 2)} />
      )}
      {status?.data != null && (
        <>
          <h4>So far</h4>
          <Fields data={status.data} />
        </>
      )}
      {result && <Result result={result} isBad={state !== "done"} />}
    </div>
  );
}

function Result({ result, isBad }: { result: Message; isBad: boolean }) {
  const text = textOf(result);
  const json = prettyJson(text);
  const files = result.extra?.files_changed;
  return (
    <>
      <h4>{isBad ? "Why" : "Result"}</h4>
      {isWithheld(result) ? (
        <p class={css.quiet}>Hidden: only the model reads this result.</p>
      ) : text === "" ? (
        <p class={css.quiet}>nothing</p>
      ) : json !== null ? (
        <LongText isCode text={json} />
      ) : (
        <div class={isBad ? `${bodyCss.resultText} ${css.bad}` : bodyCss.resultText}>
          <LongText text={text} />
        </div>
      )}
      {Array.isArray(files) && files.length > 0 && <p class={css.quiet}>Changed: {files.map(String).join(", ")}</p>}
      {result.attachments && <Attachments all={result.attachments} />}
    </>
  );
}
