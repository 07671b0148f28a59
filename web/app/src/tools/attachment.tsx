/** Shows images and files of a result; of images and files on other servers only the name is shown. */

import type { JsonObject } from "threadcast-client";

import { client, notifyOf } from "../state/session.ts";
import { token } from "../state/token.ts";
import { enlarge } from "../thread/enlarged.ts";
import { size } from "../ui/figures.ts";
import { Icon } from "../ui/icon.tsx";
import { save, useOwnImage } from "../ui/own_file.ts";
import css from "./calls.module.css";
import bodyCss from "./call_body.module.css";

export function Attachments({ all }: { all: readonly JsonObject[] }) {
  const images = all.filter((each) => each.type === "image_url");
  const files = all.filter((each) => each.type !== "image_url" && typeof each.url === "string");
  return (
    <>
      {images.length > 0 && (
        <div class={bodyCss.resultImages}>
          {images.map((image, at) => (
            <ResultImage key={at} url={String(image.url ?? "")} name={String(image.name ?? `image ${at + 1}`)} />
          ))}
        </div>
      )}
      {files.map((file, at) => (
        <FileLink key={at} url={String(file.url)} name={String(file.name ?? "file")} bytes={Number(file.bytes) || 0} />
      ))}
    </>
  );
}

function ResultImage({ url, name }: { url: string; name: string }) {
  const src = useOwnImage(url);
  if (!src) return <span class={css.quiet}>{name}</span>;
  return (
    <button type="button" aria-label={`${name}, enlarge`} onClick={() => enlarge(src, name)}>
      <img src={src} alt={name} loading="lazy" />
    </button>
  );
}

function FileLink({ url, name, bytes }: { url: string; name: string; bytes: number }) {
  const fetchAndSave = async (event: MouseEvent) => {
    if (!token()) return;
    event.preventDefault();
    try {
      save(await (await client.request("GET", url)).blob(), name);
    } catch (wrong) {
      notifyOf(wrong);
    }
  };
  if (!url.startsWith("/v1/")) return null;
  return (
    <a class={bodyCss.resultFile} href={url} download={name} onClick={fetchAndSave}>
      <Icon name="download" /> {name} <span class={css.quiet}>{size(bytes)}</span>
    </a>
  );
}
