/** Images and files that came with a result. With a bearer token they are fetched, since an address carries none. */

import type { JsonObject } from "threadcast-client";
import { useEffect, useState } from "preact/hooks";

import { client, notify } from "../state/session.ts";
import { token } from "../state/token.ts";
import { Icon } from "../ui/icon.tsx";
import { size } from "./format.ts";

export function Attachments({ all }: { all: readonly JsonObject[] }) {
  const images = all.filter((each) => each.type === "image_url");
  const files = all.filter((each) => each.type !== "image_url" && typeof each.url === "string");
  return (
    <>
      {images.length > 0 && (
        <div class="result-images">
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

/** Ours, or an image in itself: other addresses are not looked up by merely looking at a chat. */
function isSafeImage(url: string): boolean {
  return /^data:image\/(?:png|jpeg|webp|gif);base64,/.test(url) || /^\/v1\//.test(url);
}

function useFetched(url: string): string | null {
  const isOurs = url.startsWith("/v1/");
  const [address, setAddress] = useState(isOurs && token() ? null : url);
  useEffect(() => {
    if (!isOurs || !token()) return;
    let made: string | null = null;
    const control = new AbortController();
    client.request("GET", url, { signal: control.signal }).then(
      async (answer) => setAddress((made = URL.createObjectURL(await answer.blob()))),
      () => {}, // the name is shown in its place
    );
    return () => {
      control.abort();
      if (made) URL.revokeObjectURL(made);
    };
  }, [url]);
  return address;
}

function ResultImage({ url, name }: { url: string; name: string }) {
  const address = useFetched(isSafeImage(url) ? url : "");
  if (!address) return <span class="quiet">{name}</span>;
  return (
    <a href={address} target="_blank" rel="noopener noreferrer">
      <img src={address} alt={name} loading="lazy" />
    </a>
  );
}

function FileLink({ url, name, bytes }: { url: string; name: string; bytes: number }) {
  const save = async (event: MouseEvent) => {
    if (!token()) return;
    event.preventDefault();
    try {
      const made = URL.createObjectURL(await (await client.request("GET", url)).blob());
      Object.assign(document.createElement("a"), { href: made, download: name }).click();
      setTimeout(() => URL.revokeObjectURL(made), 60_000);
    } catch (wrong) {
      notify(wrong instanceof Error ? wrong.message : String(wrong));
    }
  };
  if (!url.startsWith("/v1/")) return null;
  return (
    <a class="result-file" href={url} download={name} onClick={save}>
      <Icon name="download" /> {name} <span class="quiet">{size(bytes)}</span>
    </a>
  );
}
