/** Shows the data of a payload. Large data is drawn only on request. */

import type { PayloadAdded } from "threadcast-client";
import { useId, useMemo, useState } from "preact/hooks";

import { size } from "../ui/figures.ts";
import { Icon } from "../ui/icon.tsx";
import { fieldName } from "./format.ts";
import { PayloadData } from "./payload_data.tsx";
import { PreviewCard } from "./preview.tsx";
import css from "./calls.module.css";
import bodyCss from "./call_body.module.css";
import dataCss from "./payloads.module.css";

/** The size as JSON above which data is folded, because it fills more than a screen. */
const DRAWN_MAX_CHARACTERS = 12_000;

const WRONG = /_validation_error$/;

export function PayloadCard({ payload }: { payload: PayloadAdded }) {
  return payload.source === "preview" ? <PreviewCard payload={payload} /> : <Plain payload={payload} />;
}

function Plain({ payload }: { payload: PayloadAdded }) {
  const length = useMemo(() => JSON.stringify(payload.data).length, [payload.data]);
  const [isDrawn, setDrawn] = useState(false);
  const heading = useId();
  const isWrong = WRONG.test(payload.payload_type);
  return (
    <section class={isWrong ? `${css.payload} ${dataCss.wrong}` : css.payload} id={`payload-${payload.payload_id}`} tabIndex={-1} aria-labelledby={heading}>
      <header>
        <Icon name={isWrong ? "warn" : "file"} />
        <h4 id={heading}>{payload.summary || fieldName(payload.payload_type)}</h4>
        {payload.summary && <span class={css.quiet}>{fieldName(payload.payload_type.replace(WRONG, ""))}</span>}
        {payload.unregistered && <span class={css.quiet} title="The server does not know this type, so it has not checked the data">unchecked</span>}
      </header>
      {isDrawn || length <= DRAWN_MAX_CHARACTERS ? (
        <PayloadData type={payload.payload_type} data={payload.data} />
      ) : (
        <button type="button" class={bodyCss.showAll} data-unfolds onClick={() => setDrawn(true)}>Show ({size(length)})</button>
      )}
    </section>
  );
}
