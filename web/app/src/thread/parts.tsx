/**
 * The parts of a message that are no text: images, files, sound (PROTOCOL §8, §10).
 *
 * What is large lies on the server and is fetched as this caller: by the browser itself, or, where a token is wanted in a
 * header, which no `src` can send, by us.
 */

import { useEffect, useState } from "preact/hooks";
import type { AudioPart, FilePart, ImagePart, TextPart } from "threadcast-client";

import { chat, client, notify } from "../state/session.ts";
import { token } from "../state/token.ts";
import { Icon } from "../ui/icon.tsx";
import { enlarge } from "./enlarged.ts";
import { bytes } from "./words.ts";

export type Part = TextPart | OtherPart;
export type OtherPart = ImagePart | AudioPart | FilePart;

export function Parts({ parts }: { parts: readonly OtherPart[] }) {
  return (
    <div class="parts">
      {parts.map((part, at) => {
        if (part.type === "image_url") return <Picture key={at} url={part.image_url.url} alt={`Image ${at + 1}`} />;
        if (part.type === "input_audio") return <Sound key={at} part={part} />;
        return <FileChip key={at} part={part} />;
      })}
    </div>
  );
}

/** An address on this server or data; no other is ever fetched. */
const OWN = /^(?:data:image\/(?:png|jpe?g|webp|gif);base64,|\/v1\/)/i;

function Picture({ url, alt }: { url: string; alt: string }) {
  const src = useFetched(OWN.test(url) ? url : null);
  if (!src) return <span class="picture waiting" role="img" aria-label={alt} />;
  return (
    <button type="button" class="picture" aria-label={`${alt}, enlarge`} onClick={() => enlarge(src, alt)}>
      <img src={src} alt={alt} loading="lazy" />
    </button>
  );
}

function Sound({ part }: { part: AudioPart }) {
  const { data, blob, format } = part.input_audio;
  const src = useFetched(blob ? blobPath(blob) : `data:audio/${format ?? "wav"};base64,${data ?? ""}`);
  return src ? <audio controls src={src} aria-label="Sound" /> : null;
}

function FileChip({ part }: { part: FilePart }) {
  const size = part.bytes ?? part.text?.length ?? (part.data ? Math.floor((part.data.length * 3) / 4) : 0);
  const save = async () => {
    try {
      const hash = part.blob ?? part.text_blob;
      const content = hash
        ? await (await client.request("GET", blobPath(hash))).blob()
        : new Blob([part.text ?? fromBase64(part.data ?? "")], { type: "application/octet-stream" });
      const url = URL.createObjectURL(content);
      const link = Object.assign(document.createElement("a"), { href: url, download: part.name });
      link.click();
      setTimeout(() => URL.revokeObjectURL(url), 60_000); // a minute: the browser has begun to save by then
    } catch (wrong) {
      notify(wrong instanceof Error ? wrong.message : String(wrong));
    }
  };
  return (
    <button type="button" class="file" title={`Save ${part.name}`} onClick={() => void save()}>
      <Icon name="file" />
      <span class="name">{part.name}</span>
      {size > 0 && <span class="size">{bytes(size)}</span>}
    </button>
  );
}

function blobPath(hash: string): string {
  return `/v1/chats/${chat.peek()?.id ?? ""}/blobs/${hash}`;
}

function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
}

/** What may stand in `src`: the address itself, or the bytes that were fetched with the caller's token. */
function useFetched(url: string | null): string | null {
  const isPlain = url === null || url.startsWith("data:") || token() === undefined;
  const [fetched, setFetched] = useState<string | null>(null);
  useEffect(() => {
    if (isPlain) return;
    let made = "";
    const end = new AbortController();
    client
      .request("GET", url, { signal: end.signal })
      .then(async (answer) => setFetched((made = URL.createObjectURL(await answer.blob()))))
      .catch(() => setFetched(null));
    return () => {
      end.abort();
      URL.revokeObjectURL(made);
    };
  }, [url]);
  return isPlain ? url : fetched;
}
