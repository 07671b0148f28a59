/** The state of a chat's connection to the server, and the events of that connection. */

/**
 * The state of the connection to the server. `held` counts the commands that were sent and that the stream has not
 * shown yet; commands that are being taken back do not count.
 */
export interface Connection {
  readonly state: "offline" | "catching_up" | "live";
  readonly held: number;
  readonly reason?: string;
  /** The time of the next attempt, in milliseconds on the clock of `performance.now()`, which is never adjusted. */
  readonly retryAt?: number;
  /**
   * The time at which the server last sent a byte, on the same clock; this time is set only while a heartbeat is
   * overdue (PROTOCOL §4).
   */
  readonly silentSince?: number;
  /** The server does not know the caller. Call `Client.retry()` after a sign-in. */
  readonly isSignedOut?: boolean;
  /** More chats are open than one connection carries, and this chat is not among the most recently viewed. */
  readonly isResting?: boolean;
}

/** An event of the connection, for views that show such events. */
export type Happening =
  /** `after` is the position after which the server was asked to continue; null if a snapshot was requested. */
  | { kind: "opened"; after: number | null }
  | { kind: "lost"; reason: string; retryMs: number }
  /** An event is missing: number `got` came where `expected` was due. A snapshot follows. */
  | { kind: "missed"; expected: number; got: number }
  /** All missed events have arrived, and all kept commands are posted. */
  | { kind: "live" };
