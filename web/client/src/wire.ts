/**
 * Sends HTTP requests to one server and opens streams. Only this file calls `fetch`. A failed connection throws
 * `Unreachable`, a refusal by the server throws `Refused`, and an answer that asks for a later attempt throws `Busy`,
 * with the time that the server asked for.
 */

import { RETRY_POLICY, type RetryPolicy } from "./backoff.js";
import { after, TIMER_MAX_MS } from "./clock.js";
import { isSignedOut, Refused, Unreachable } from "./errors.js";

/** A bearer token, or a function that returns the valid token; it is called before every request. */
export type Token = string | (() => string | undefined | Promise<string | undefined>);

export interface WireOptions {
  /** The server's address. The default is the page's own origin. */
  url?: string;
  /** Without a token, requests carry only the origin's cookies. */
  token?: Token;
  /**
   * The credential that tools with `forward_auth` send to their services as `Authorization`, such as "Bearer …". The
   * credential is sent with commands only. It must not be the token of this server.
   */
  forwardAuthorization?: Token;
  /**
   * The user id that the caller expects. If the server knows the caller by another id, the server refuses the request
   * (PROTOCOL §1).
   */
  principal?: string;
  /**
   * Whether a person can sign in while the program runs. If so, a 401 does not end a chat, and the request is repeated
   * (`retry()`).
   */
  awaitsSignIn?: boolean;
  retryPolicy?: Partial<RetryPolicy>;
  fetch?: typeof fetch;
}

/** The server asks the client to repeat the request later. */
export class Busy extends Error {
  constructor(
    message: string,
    readonly retryMs: number,
  ) {
    super(message);
  }
}

const BUSY: ReadonlySet<number> = new Set([408, 425, 429, 500, 502, 503, 504]);

/** The longest pause that a failing server may ask for. A quota (429) may ask for a longer pause. */
const FAILING_PAUSE_MAX_MS = 60_000;

const SIGN_IN_MS = 30_000;

export class Wire {
  readonly retryPolicy: RetryPolicy;
  private readonly base: string;
  private readonly fetch: typeof fetch;

  constructor(private readonly options: WireOptions = {}) {
    this.retryPolicy = { ...RETRY_POLICY, ...options.retryPolicy };
    this.base = (options.url ?? "").replace(/\/$/, "");
    this.fetch = options.fetch ?? ((input, init) => fetch(input, init));
  }

  /** Sends one request, once, and returns the JSON of the answer. Throws Refused, Busy and Unreachable. */
  async ask<T>(method: string, path: string, body?: BodyInit, headers?: Record<string, string>): Promise<T> {
    const response = await this.request(method, path, { body, headers });
    return (await response.json().catch(() => ({}))) as T;
  }

  /** Sends one request, once, and returns an answer with a status from 200 to 299. Throws as `ask`. */
  async request(
    method: string,
    path: string,
    { body, headers, signal }: { body?: BodyInit; headers?: Record<string, string>; signal?: AbortSignal } = {},
  ): Promise<Response> {
    const limit = signal ?? AbortSignal.timeout(Math.min(this.retryPolicy.answerMs, TIMER_MAX_MS));
    const json: Record<string, string> = typeof body === "string" ? { "Content-Type": "application/json" } : {};
    try {
      const response = await this.fetch(this.base + path, {
        method,
        body,
        signal: limit,
        credentials: "same-origin",
        headers: { ...json, ...(await this.authorization()), ...headers }, // the caller's headers override the others
      });
      if (response.ok) return response;
      throw await trouble(response);
    } catch (wrong) {
      throw wrong instanceof Refused || wrong instanceof Busy ? wrong : unreachable(wrong, limit);
    }
  }

  /**
   * Opens a stream and returns its bytes. The stream has no time limit; abort `signal` to end it. This method and the
   * reading of the bytes throw the same errors as `ask`.
   */
  async stream(path: string, lastEventId: string, signal: AbortSignal): Promise<ReadableStream<Uint8Array>> {
    const headers: Record<string, string> = { Accept: "text/event-stream" };
    if (lastEventId) headers["Last-Event-ID"] = lastEventId;
    const connecting = new AbortController();
    const give = () => connecting.abort();
    const cancel = after(this.retryPolicy.connectMs, give);
    signal.addEventListener("abort", give, { once: true });
    try {
      const response = await this.request("GET", path, { headers, signal: connecting.signal });
      if (!response.headers.get("content-type")?.startsWith("text/event-stream") || !response.body) {
        throw new Refused("the server at this address is no threadcast server", "bad_request", response.status);
      }
      return response.body;
    } finally {
      cancel();
    }
  }

  /**
   * Returns how long to wait for a sign-in before the next request, in milliseconds; 0 if `wrong` does not ask for a
   * sign-in. A sign-in ends the wait.
   */
  signInMs(wrong: unknown): number {
    return this.options.awaitsSignIn && isSignedOut(wrong) ? SIGN_IN_MS : 0;
  }

  /** Returns the header with the caller's credential for tools (`forwardAuthorization`), for requests with a command. */
  async lent(): Promise<Record<string, string>> {
    const value = await present(this.options.forwardAuthorization);
    return value ? { "Threadcast-Forward-Authorization": value } : {};
  }

  private async authorization(): Promise<Record<string, string>> {
    const { token, principal } = this.options;
    const now = await present(token);
    return { ...(now && { Authorization: `Bearer ${now}` }), ...(principal && { "Threadcast-Principal": principal }) };
  }
}

async function present(token: Token | undefined): Promise<string | undefined> {
  return typeof token === "function" ? token() : token;
}

/** Joins segments to a path below `/v1/`, each one percent-encoded. */
export function pathOf(...segments: string[]): string {
  return `/v1/${segments.map(encodeURIComponent).join("/")}`;
}

async function trouble(response: Response): Promise<Refused | Busy> {
  const body = ((await response.json().catch(() => null)) ?? {}) as Record<string, string>;
  const reason = body.detail ?? body.error ?? `the server answered ${response.status}`;
  // An ack may have the code `queue_full` too. The refusal is final for this command, so its sender must get the error
  // (PROTOCOL §3).
  if (BUSY.has(response.status) && body.status !== "queue_full" && body.code !== "queue_full") {
    const asked = 1000 * (Number(response.headers.get("retry-after")) || 0);
    return new Busy(reason, response.status === 429 ? asked : Math.min(asked, FAILING_PAUSE_MAX_MS));
  }
  return new Refused(reason, body.code ?? body.status ?? "bad_request", response.status, body.path, body);
}

function unreachable(wrong: unknown, signal: AbortSignal): Unreachable {
  if (signal.aborted) return new Unreachable("no answer in time");
  return new Unreachable(wrong instanceof TypeError ? "the server does not answer" : "the connection broke");
}
