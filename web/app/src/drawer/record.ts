/**
 * Records the events and connections of the open chat, newest last.
 *
 * Events are recorded also while the drawer is closed, so that a person who opens the drawer sees the latest events.
 * Recording must therefore cost almost nothing: an event is only appended, and views are updated four times a second.
 * The number of lines is limited, and so is the number of kept snapshots, because only snapshots are often large.
 */

import { effect, signal } from "@preact/signals";
import type { Happening } from "threadcast-client";

import { chat, onConnection, onEvent } from "../state/session.ts";
import { added, NOTHING, type Line, type Log } from "./log.ts";
import { counted, NONE, type Counts } from "./counts.ts";

export const log = signal<Log>(NOTHING);
export const counts = signal<Counts>(NONE);
/** The last snapshot that arrived in the stream. */
export const lastSnapshot = signal<{ position: number; body: object } | null>(null);

let newest: Log = NOTHING;
let tally: Counts = NONE;
let isDue = false;

const DRAW_MS = 250;

function put(line: Omit<Line, "number" | "at">): void {
  newest = added(newest, { ...line, at: Date.now() });
  if (isDue) return;
  isDue = true;
  setTimeout(() => {
    isDue = false;
    log.value = newest;
    counts.value = tally;
  }, DRAW_MS);
}

/** Adds a note to the log, such as "cut". */
export function note(text: string): void {
  put({ kind: "note", type: "note", position: null, text, body: null });
}

onEvent((event, position, id) => {
  tally = counted(tally, event.type === "snapshot" ? "snapshot" : "event");
  if (event.type === "snapshot") {
    lastSnapshot.value = { position, body: event };
    put({ kind: "note", type: "note", position, text: `snapshot at position ${position}`, body: null });
  }
  put({ kind: "event", type: event.type, position: id ? position : null, text: "", body: event });
});

onConnection((happening) => {
  tally = counted(tally, happening);
  put({ kind: "note", type: "note", position: null, text: sentence(happening), body: null });
});

function sentence(happening: Happening): string {
  switch (happening.kind) {
    case "opened":
      return happening.after === null ? "connected, asking for a snapshot" : `connected, resuming after position ${happening.after}`;
    case "lost":
      return `connection lost: ${happening.reason}; next attempt in ${(happening.retryMs / 1000).toFixed(1)} s`;
    case "missed":
      return `gap seen: expected event ${happening.expected}, got ${happening.got}; asking for a snapshot`;
    case "live":
      return "live: all missed events have arrived";
  }
}

effect(() => {
  if (!chat.value) return;
  newest = log.value = NOTHING;
  tally = counts.value = NONE;
  lastSnapshot.value = null;
});
