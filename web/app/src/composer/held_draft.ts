/** Reads the draft of a sent message back from the body of its command. Pure. */

import type { Held } from "threadcast-client";

import type { Draft, DraftFile } from "../state/drafts.ts";

/** Returns the draft of a kept message. Only the page that sent the message has the names and sizes of its files. */
export function draftOf({ body }: Held): Draft {
  const { content, attachments = [] } = JSON.parse(body) as { content?: unknown; attachments?: object[] };
  return { text: typeof content === "string" ? content : "", files: attachments.flatMap(fileOf) };
}

/**
 * Returns a list with the upload that a part of a message refers to; the list is empty if the part has no upload. Parts
 * contain no size, and only parts of the type `file` contain a name.
 */
export function fileOf(part: object): DraftFile[] {
  const { image_url, input_audio, name, mime, blob } = part as {
    image_url?: { url?: string };
    input_audio?: { format?: string; blob?: string };
    name?: string;
    mime?: string;
    blob?: string;
  };
  const hash = blob ?? input_audio?.blob ?? image_url?.url?.split("/").at(-1);
  if (!hash) return [];
  const kind = image_url ? "image/png" : input_audio ? `audio/${input_audio.format === "mp3" ? "mpeg" : "wav"}` : (mime ?? "");
  return [{ name: name ?? (image_url ? "image" : "sound"), mime: kind, bytes: 0, url: image_url?.url ?? "", hash }];
}
