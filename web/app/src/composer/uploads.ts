/** The files of an unsent message, with the progress of each. The code that uploads them is loaded with the first file. */

import { signal } from "@preact/signals";
import { newId } from "threadcast-client";

import { targetId } from "../state/writing.ts";
import { fetched } from "../ui/lazy.tsx";

export interface Upload {
  readonly id: string;
  /** The id of the chat that gets the file. */
  readonly target: string;
  readonly file: File;
  /** 0..1 */
  readonly progress: number;
  /** The reason why the file cannot be attached, and what to do; shown after the file's name. */
  readonly error?: string;
  /**
   * Whether uploading again may help. Until the person uploads the file again or removes it, the message cannot be
   * sent.
   */
  readonly mayRetry?: boolean;
}

export const uploads = signal<readonly Upload[]>([]);

/** Clears the list of files that could not be attached, once a message of this chat was sent. */
export function forgetRefusals(target: string): void {
  uploads.value = uploads.peek().filter((one) => one.target !== target || !one.error);
}

/** Lists an item that can never be attached, such as a folder. */
export function refuse(name: string, error: string): void {
  uploads.value = [...uploads.peek(), { id: newId(), target: targetId(), file: new File([], name), progress: 0, error }];
}

/** Attaches files. The files are listed at once, so that no message is sent without them. */
export function attach(files: Iterable<File>): void {
  const added = Array.from(files, (file) => ({ id: newId(), target: targetId(), file, progress: 0 }));
  uploads.value = [...uploads.peek(), ...added];
  void fetched(() => import("./uploading.ts")).then((room) => {
    for (const { id } of added) room ? room.begin(id) : change(id, { error: "the upload failed. Try again.", mayRetry: true });
  });
}

export function change(id: string, to: Partial<Upload>): void {
  uploads.value = uploads.peek().map((one) => (one.id === id ? { ...one, ...to } : one));
}
