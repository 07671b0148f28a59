/** Counts the connections, losses and gaps of a chat since it was opened. Pure. */

import type { Happening } from "threadcast-client";

export interface Counts {
  readonly events: number;
  readonly snapshots: number;
  readonly connections: number;
  /** The number of connections that were asked to continue where the previous connection ended. */
  readonly resumes: number;
  readonly losses: number;
  readonly gaps: number;
  /** Snapshots that replaced missed events. */
  readonly resyncs: number;
  readonly isAwaitingResync: boolean;
}

export const NONE: Counts = {
  events: 0,
  snapshots: 0,
  connections: 0,
  resumes: 0,
  losses: 0,
  gaps: 0,
  resyncs: 0,
  isAwaitingResync: false,
};

export function counted(counts: Counts, what: Happening | "event" | "snapshot"): Counts {
  if (what === "event") return { ...counts, events: counts.events + 1 };
  if (what === "snapshot") {
    const resyncs = counts.resyncs + (counts.isAwaitingResync ? 1 : 0);
    return { ...counts, snapshots: counts.snapshots + 1, resyncs, isAwaitingResync: false };
  }
  switch (what.kind) {
    case "opened": {
      const isResume = what.after !== null;
      // The server answers an impossible resume with a snapshot too (PROTOCOL §4); a first connection always begins
      // with a snapshot.
      const isAwaitingResync = counts.connections > 0;
      return { ...counts, connections: counts.connections + 1, resumes: counts.resumes + (isResume ? 1 : 0), isAwaitingResync };
    }
    case "lost":
      return { ...counts, losses: counts.losses + 1 };
    case "missed":
      return { ...counts, gaps: counts.gaps + 1, isAwaitingResync: true };
    case "live":
      return { ...counts, isAwaitingResync: false };
  }
}
