/** Files that are to go with a message, and how far each is. What brings them to the server comes when the first one does. */

import { signal } from "@preact/signals";
import { newId } from "threadcast-client";

import { targetId } from "../state/writing.ts";
import { fetched } from "../ui/lazy.tsx";

export interface Upload {
  readonly id: string;
  /** The chat that it goes to. */
  readonly target: string;
  readonly file: File;
  /** 0..1 */
  readonly progress: number;
  /** What is wrong and what to do; the file's name stands before it. */
  readonly error?: string;
  /** Trying again may help; while it is not tried, the message does not go without it. */
  readonly mayRetry?: boolean;
}

export const uploads = signal<readonly Upload[]>([]);

/** A message of this chat is on its way: what could not go with it is no news any more. */
export function forgetRefusals(target: string): void {
  uploads.value = uploads.peek().filter((one) => one.target !== target || !one.error);
}

/** What cannot be attached at all, such as a folder. */
export function refuse(name: string, error: string): void {
  uploads.value = [...uploads.peek(), { id: newId(), target: targetId(), file: new File([], name), progress: 0, error }];
}

/** They stand there at once, so that no message goes without them. */
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
