/** Shows the parts of a message that are not text: images, files and sound (PROTOCOL §8, §10). */

import type { AudioPart, FilePart, ImagePart, TextPart } from "threadcast-client";

import { chat, client, notifyOf } from "../state/session.ts";
import { size } from "../ui/figures.ts";
import { Icon } from "../ui/icon.tsx";
import { save, useOwnFile, useOwnImage } from "../ui/own_file.ts";
import { enlarge } from "./enlarged.ts";
import css from "./thread.module.css";

export type Part = TextPart | OtherPart;
export type OtherPart = ImagePart | AudioPart | FilePart;

export function Parts({ parts }: { parts: readonly OtherPart[] }) {
  return (
    <div class={css.parts}>
      {parts.map((part, at) => {
        if (part.type === "image_url") return <Picture key={at} url={part.image_url.url} alt={`Image ${at + 1}`} />;
        if (part.type === "input_audio") return <Sound key={at} part={part} />;
        return <FileChip key={at} part={part} />;
      })}
    </div>
  );
}

function Picture({ url, alt }: { url: string; alt: string }) {
  const src = useOwnImage(url);
  if (!src) return <span class={css.picture} role="img" aria-label={alt} />;
  return (
    <button type="button" class={css.picture} aria-label={`${alt}, enlarge`} onClick={() => enlarge(src, alt)}>
      <img src={src} alt={alt} loading="lazy" />
    </button>
  );
}

function Sound({ part }: { part: AudioPart }) {
  const { data, blob, format } = part.input_audio;
  const src = useOwnFile(blob ? blobPath(blob) : `data:audio/${format ?? "wav"};base64,${data ?? ""}`);
  return src ? <audio controls src={src} aria-label="Sound" /> : null;
}

function FileChip({ part }: { part: FilePart }) {
  const bytes = part.bytes ?? part.text?.length ?? (part.data ? Math.floor((part.data.length * 3) / 4) : 0);
  const fetchAndSave = async () => {
    try {
      const hash = part.blob ?? part.text_blob;
      const content = hash
        ? await (await client.request("GET", blobPath(hash))).blob()
        : new Blob([part.text ?? fromBase64(part.data ?? "")], { type: "application/octet-stream" });
      save(content, part.name);
    } catch (wrong) {
      notifyOf(wrong);
    }
  };
  return (
    <button type="button" class={css.file} title={`Save ${part.name}`} onClick={() => void fetchAndSave()}>
      <Icon name="file" />
      <span class={css.name}>{part.name}</span>
      {bytes > 0 && <span class={css.size}>{size(bytes)}</span>}
    </button>
  );
}

function blobPath(hash: string): string {
  return `/v1/chats/${chat.peek()?.id ?? ""}/blobs/${hash}`;
}

function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
}
