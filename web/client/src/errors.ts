/**
 * The errors that a program may catch.
 *
 * ThreadcastError .code (PROTOCOL §17) ├── Refused the server refuses, by an HTTP answer or by an ack; repeating does
 * not help. `.status` ├── Unreachable no answer in time; sent commands stay in the outbox and are posted later ├──
 * OutboxFull more commands are waiting than one chat may hold └── Closed `close()` was called
 */

export class ThreadcastError extends Error {
  override readonly name: string = "ThreadcastError";

  constructor(
    message: string,
    readonly code: string,
  ) {
    super(message);
  }
}

export class Refused extends ThreadcastError {
  override readonly name = "Refused";

  /**
   * `status` is 0 for a refusal by an ack. `path` is the refused place in the request's body, if the server names it
   * (RFC 6901). `body` is the server's whole answer, if the server answered. If a requested position is no longer
   * stored, the field `first` of `body` is the first stored position.
   */
  constructor(
    message: string,
    code: string,
    readonly status = 0,
    readonly path?: string,
    readonly body?: Readonly<Record<string, unknown>>,
  ) {
    super(message, code);
  }
}

/** Whether the server does not know the caller, so that a person has to sign in (401). */
export function isSignedOut(wrong: unknown): boolean {
  return wrong instanceof Refused && wrong.status === 401;
}

export class Unreachable extends ThreadcastError {
  override readonly name = "Unreachable";

  constructor(message: string) {
    super(message, "connection");
  }
}

export class OutboxFull extends ThreadcastError {
  override readonly name = "OutboxFull";

  constructor(message: string) {
    super(message, "queue_full");
  }
}

export class Closed extends ThreadcastError {
  override readonly name = "Closed";

  constructor(what: string) {
    super(`${what} is closed; open it again to go on`, "cancelled");
  }
}
