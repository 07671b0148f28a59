/** Shows the files of the message: uploads with their progress, and uploaded files. */

import { useEffect, useState } from "preact/hooks";

import type { DraftFile } from "../state/drafts.ts";
import { client } from "../state/session.ts";
import { removeFile, targetId, written } from "../state/writing.ts";
import { size } from "../ui/figures.ts";
import { Icon, IconButton } from "../ui/icon.tsx";
import { isImage } from "./files.ts";
import { listed } from "./names.ts";
import { begin, cancelUpload, keepPreview, previewOf } from "./uploading.ts";
import { uploads, type Upload } from "./uploads.ts";
import css from "./attached.module.css";

export function Attached() {
  const ours = uploads.value.filter(({ target }) => target === targetId());
  const onTheWay = ours.filter(({ error }) => !error);
  const { files } = written.value;
  return (
    <>
      {(files.length > 0 || onTheWay.length > 0) && (
        <ul class={css.attached} aria-label="Attachments">
          {files.map((file) => (
            <li key={file.hash} title={file.name}>
              {isImage(file.mime) ? <Picture file={file} /> : <Icon name="file" />}
              <span class={css.name} dir="auto">{file.name}</span>
              {file.bytes > 0 && <span class={css.size}>{size(file.bytes)}</span>}
              <IconButton name="close" label={`Remove ${file.name}`} onClick={() => removeFile(file)} />
            </li>
          ))}
          {onTheWay.map(({ id, file, progress }) => (
            <li key={id} title={file.name}>
              <Icon name="file" />
              <span class={css.name} dir="auto">{file.name}</span>
              <progress aria-label={`Upload of ${file.name}`} value={progress} max={1} />
              <IconButton name="close" label={`Remove ${file.name}`} onClick={() => cancelUpload(id)} />
            </li>
          ))}
        </ul>
      )}
      <Refusals refused={ours.filter(({ error }) => error)} />
    </>
  );
}

/** Lists the files that could not be attached: one line for each reason, with its files. */
function Refusals({ refused }: { refused: readonly Upload[] }) {
  const reasons = [...new Set(refused.map(({ error }) => error))];
  if (!reasons.length) return null;
  return (
    <ul class={css.refusals} aria-label="Not attached" role="alert">
      {reasons.map((reason) => {
        const alike = refused.filter(({ error }) => error === reason);
        const ids = alike.map(({ id }) => id);
        const names = listed(alike.map(({ file }) => file.name || "The file"));
        return (
          <li key={reason}>
            <Icon name="warn" />
            <span>
              <b dir="auto">{names}</b>: {reason}
            </span>
            {alike.every(({ mayRetry }) => mayRetry) && <IconButton name="retry" label={`Try ${names} again`} onClick={() => ids.forEach(begin)} />}
            <IconButton name="close" label={`Dismiss ${names}`} onClick={() => dismissUploads(ids)} />
          </li>
        );
      })}
    </ul>
  );
}

function dismissUploads(ids: readonly string[]): void {
  uploads.value = uploads.peek().filter((one) => !ids.includes(one.id));
}

/**
 * Shows an attached image. After a reload the image is fetched from the server with the token, which an `img` element
 * cannot send.
 */
function Picture({ file }: { file: DraftFile }) {
  const [source, setSource] = useState(() => previewOf(file.hash));
  useEffect(() => {
    if (source) return;
    client.request("GET", file.url).then(
      async (answer) => setSource(keepPreview(file.hash, await answer.blob())),
      () => {}, // the name is shown without a picture
    );
  }, [file.hash]);
  return source ? <img src={source} alt="" /> : <Icon name="file" />;
}
