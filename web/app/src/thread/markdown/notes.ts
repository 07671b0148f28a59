/** Numbers the footnotes of an answer, shows them below it, and links references and notes. */

import type { Split } from "./split.ts";
import { noteParts } from "./grammar.ts";
import type { Notes } from "./render.ts";

export interface Note {
  readonly label: string;
  readonly text: string;
  readonly number: number;
}

/** A label of digits is almost always a footnote, so it is numbered before its text arrives. */
const SURE_LABEL = /^\d{1,3}$/;

/**
 * Numbers the footnotes in the order of their first references. Footnotes without a reference are left out, as on
 * GitHub. `owners` maps each label to the block of its first reference.
 */
export function numbered({ labels, notes }: Pick<Split, "labels" | "notes">, isGrowing: boolean): { notes: Note[]; owners: Map<string, number> } {
  const texts = new Map<string, string>();
  for (const note of notes.map(noteParts)) if (!texts.has(note.label)) texts.set(note.label, note.text);
  const owners = new Map<string, number>();
  for (const [block, found] of labels.entries()) {
    for (const label of found) {
      if (!owners.has(label) && (texts.has(label) || (isGrowing && SURE_LABEL.test(label)))) owners.set(label, block);
    }
  }
  return { notes: [...owners.keys()].map((label, at) => ({ label, text: texts.get(label) ?? "", number: at + 1 })), owners };
}

/** Returns the notes of a block as one string; if this string is unchanged, the block is not drawn again. */
export function notesOf(labels: readonly string[], block: number, { notes, owners }: ReturnType<typeof numbered>): string {
  const found = notes.filter((note) => labels.includes(note.label));
  return found.map(({ label, number }) => `${number}${owners.get(label) === block ? "*" : ""} ${label}`).join("\n");
}

/** `prefix` makes the ids unique to this text. */
export function read(said: string, prefix: string): Notes {
  const notes = said.split("\n").map((line) => /^(\d+)(\*?) (.*)$/.exec(line));
  return new Map(
    notes.flatMap((found) => {
      if (!found) return [];
      const [, number, owns, label = ""] = found;
      return [[label, { number: Number(number), href: `#${prefix}-note-${number}`, id: owns ? `${prefix}-ref-${number}` : "" }]];
    }),
  );
}

/** Moves from a reference to its note or back. The address of the page does not change. */
export function goToNote(link: HTMLAnchorElement): void {
  const place = document.getElementById(link.hash.slice(1));
  place?.scrollIntoView({ block: "nearest" });
  place?.focus({ preventScroll: true });
}
