/** Checks whether a file may be attached, and writes it as a part of a message (PROTOCOL §10). Pure. */

import type { Attachment } from "threadcast-client";

import type { DraftFile } from "../state/drafts.ts";
import { size } from "../ui/figures.ts";

export interface Chosen {
  readonly name: string;
  readonly type: string;
  readonly size: number;
}

/** The server's limits, as `GET /v1/caps` names them. */
export interface Limits {
  readonly images_max_count: number;
  readonly binary_max_bytes: number;
  readonly blob_max_bytes: number;
  readonly parts_max_count: number;
}

/** The formats that every reader of a chat can show. */
const IMAGES: ReadonlySet<string> = new Set(["image/png", "image/jpeg", "image/webp", "image/gif"]);
const SOUNDS: Readonly<Record<string, "wav" | "mp3">> = { "audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3" };

export function isImage(mime: string): boolean {
  return IMAGES.has(mime);
}

/**
 * Returns why a file cannot be attached to a message with the files `there`, and what to do; null if the file can be
 * attached. The sentence does not name the file.
 */
export function refusalOf(file: Chosen, there: readonly { mime: string }[], limits: Limits): string | null {
  if (!file.size) return "the file is empty. Choose another file.";
  const most = isImage(file.type) ? Math.min(limits.binary_max_bytes, limits.blob_max_bytes) : limits.blob_max_bytes;
  if (file.size > most) {
    const [has, may] = [size(file.size), size(most)];
    return has === may
      ? `a little more than the ${may} that can be attached. Choose a smaller one.`
      : `${has}, and at most ${may} can be attached. Choose a smaller one.`;
  }
  const images = there.filter(({ mime }) => isImage(mime)).length;
  if (isImage(file.type) && images >= limits.images_max_count) {
    return `at most ${limits.images_max_count} images can be attached to one message. Send the others with the next message.`;
  }
  // The text is one of the parts.
  const files = limits.parts_max_count - 1;
  return there.length < files ? null : `at most ${files} files can be attached to one message. Send the others with the next message.`;
}

/** Returns the part of a message that refers to an upload. */
export function partOf({ name, mime, url, hash }: DraftFile): Attachment {
  if (isImage(mime)) return { type: "image_url", image_url: { url } };
  const format = SOUNDS[mime];
  if (format) return { type: "input_audio", input_audio: { format, blob: hash } };
  return { type: "file", name, mime, blob: hash };
}
