/** What goes with the message: files on their way, with how far they are, and those that have come. */

import { useEffect, useState } from "preact/hooks";

import type { DraftFile } from "../state/drafts.ts";
import { client } from "../state/session.ts";
import { removeFile, targetId, written } from "../state/writing.ts";
import { size } from "../ui/figures.ts";
import { Icon, IconButton } from "../ui/icon.tsx";
import { isImage } from "./files.ts";
import { cancelUpload, keepPreview, previewOf, retryUpload, uploads, type Upload } from "./uploads.ts";
import css from "./composer.module.css";

export function Attached() {
  const onTheWay = uploads.value.filter(({ target }) => target === targetId());
  const { files } = written.value;
  if (!files.length && !onTheWay.length) return null;
  return (
    <ul class={css.attached} aria-label="Attachments">
      {files.map((file) => (
        <li key={file.hash} title={file.name}>
          {isImage(file.mime) ? <Picture file={file} /> : <Icon name="file" />}
          <span class={css.name}>{file.name}</span>
          <span class={css.size}>{size(file.bytes)}</span>
          <IconButton name="close" label={`Remove ${file.name}`} onClick={() => removeFile(file)} />
        </li>
      ))}
      {onTheWay.map((upload) => (
        <OnTheWay key={upload.id} upload={upload} />
      ))}
    </ul>
  );
}

function OnTheWay({ upload: { id, file, progress, error } }: { upload: Upload }) {
  return (
    <li class={error ? css.failed : undefined} title={error ?? file.name}>
      <Icon name={error ? "warn" : "file"} />
      <span class={css.name}>{error ?? file.name}</span>
      {error ? (
        <IconButton name="retry" label={`Try ${file.name} again`} onClick={() => retryUpload(id)} />
      ) : (
        <progress aria-label={`Upload of ${file.name}`} value={progress} max={1} />
      )}
      <IconButton name="close" label={`Remove ${file.name}`} onClick={() => cancelUpload(id)} />
    </li>
  );
}

/** An image of ours. After a reload it is asked of the server, with the token that an `img` cannot send. */
function Picture({ file }: { file: DraftFile }) {
  const [source, setSource] = useState(() => previewOf(file.hash));
  useEffect(() => {
    if (source) return;
    client.request("GET", file.url).then(
      async (answer) => setSource(keepPreview(file.hash, await answer.blob())),
      () => {}, // its name stands there all the same
    );
  }, [file.hash]);
  return source ? <img src={source} alt="" /> : <Icon name="file" />;
}
