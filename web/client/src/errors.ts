/**
 * What can go wrong for a program that uses the client.
 *
 *   ThreadcastError            .code (PROTOCOL §17)
 *   ├── Refused                the server says no, by an HTTP answer or by an ack; waiting does not help. `.status`
 *   ├── Unreachable            no answer in time; what was sent stays in the outbox and goes out later
 *   ├── OutboxFull             more is waiting than one chat may hold
 *   └── Closed                 `close()` was called
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
   * `status` is 0 for a refusal by an ack; `path` points into the body where the server could say so (RFC 6901); `body`
   * is the whole answer where there was one: of a position that is no longer held it names the `first` that is.
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

/** The server does not know the caller, so that somebody has to sign in (401). */
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
