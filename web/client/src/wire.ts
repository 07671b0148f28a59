/**
 * HTTP to one server: requests with one answer, and the opening of streams. The only file that calls `fetch`.
 *
 * It knows no chat and keeps nothing. The rule: whatever goes wrong on the way is `Unreachable`, whatever the server
 * says no to is `Refused`, and everything that may be tried again is `Busy`, with the time that the server asked for.
 */

import { PATIENCE, type Patience } from "./backoff.js";
import { after, TIMER_MAX_MS } from "./clock.js";
import { Refused, Unreachable } from "./errors.js";

/** A bearer token, or who gives the one that is good now: it is asked before every request. */
export type Token = string | (() => string | undefined | Promise<string | undefined>);

export interface WireOptions {
  /** Where the server is; the page's own origin unless given. */
  url?: string;
  /** Without one, requests carry the origin's cookies and nothing else. */
  token?: Token;
  /** The id that the caller expects to have. If the server knows the caller by another id, it refuses (PROTOCOL §1). */
  principal?: string;
  /** A person can sign in while the program runs: a 401 ends no chat, and the request is tried again (`retry()`). */
  awaitsSignIn?: boolean;
  patience?: Partial<Patience>;
  fetch?: typeof fetch;
}

/** Not now; ask again. */
export class Busy extends Error {
  constructor(
    message: string,
    readonly retryMs: number,
  ) {
    super(message);
  }
}

const BUSY: ReadonlySet<number> = new Set([408, 425, 429, 500, 502, 503, 504]);

/** What a failing server may ask us to stay away for. A quota (429) may ask for longer. */
const FAILING_PAUSE_MAX_MS = 60_000;

export class Wire {
  readonly patience: Patience;
  private readonly base: string;
  private readonly fetch: typeof fetch;
  readonly awaitsSignIn: boolean;

  constructor(private readonly options: WireOptions = {}) {
    this.awaitsSignIn = options.awaitsSignIn ?? false;
    this.patience = { ...PATIENCE, ...options.patience };
    this.base = (options.url ?? "").replace(/\/$/, "");
    this.fetch = options.fetch ?? ((input, init) => fetch(input, init));
  }

  /** One request, once; its JSON. Throws Refused, Busy, Unreachable. */
  async ask<T>(method: string, path: string, body?: BodyInit, headers?: Record<string, string>): Promise<T> {
    const response = await this.request(method, path, { body, headers });
    return (await response.json().catch(() => ({}))) as T;
  }

  /** One request, once; whatever came with a status of 200 to 299. Throws as `ask`. */
  async request(
    method: string,
    path: string,
    { body, headers, signal }: { body?: BodyInit; headers?: Record<string, string>; signal?: AbortSignal } = {},
  ): Promise<Response> {
    const limit = signal ?? AbortSignal.timeout(Math.min(this.patience.answerMs, TIMER_MAX_MS));
    const json: Record<string, string> = typeof body === "string" ? { "Content-Type": "application/json" } : {};
    try {
      const response = await this.fetch(this.base + path, {
        method,
        body,
        signal: limit,
        credentials: "same-origin",
        headers: { ...json, ...(await this.authorization()), ...headers }, // the caller's headers win
      });
      if (response.ok) return response;
      throw await trouble(response);
    } catch (wrong) {
      throw wrong instanceof Refused || wrong instanceof Busy ? wrong : unreachable(wrong, limit);
    }
  }

  /** The bytes of one connection. It is `signal`'s affair when they end. Throws as `ask`; so may reading them. */
  async stream(path: string, lastEventId: string, signal: AbortSignal): Promise<ReadableStream<Uint8Array>> {
    const headers: Record<string, string> = { Accept: "text/event-stream" };
    if (lastEventId) headers["Last-Event-ID"] = lastEventId;
    const connecting = new AbortController();
    const give = () => connecting.abort();
    const cancel = after(this.patience.connectMs, give);
    signal.addEventListener("abort", give, { once: true });
    try {
      const response = await this.request("GET", path, { headers, signal: connecting.signal });
      if (!response.headers.get("content-type")?.startsWith("text/event-stream") || !response.body) {
        throw new Refused("what answers there is no threadcast server", "bad_request", response.status);
      }
      return response.body;
    } finally {
      cancel();
    }
  }

  private async authorization(): Promise<Record<string, string>> {
    const { token, principal } = this.options;
    const now = typeof token === "function" ? await token() : token;
    return { ...(now && { Authorization: `Bearer ${now}` }), ...(principal && { "Threadcast-Principal": principal }) };
  }
}

/** `/v1/…` with each segment quoted. */
export function pathOf(...segments: string[]): string {
  return `/v1/${segments.map(encodeURIComponent).join("/")}`;
}

async function trouble(response: Response): Promise<Refused | Busy> {
  const body = ((await response.json().catch(() => null)) ?? {}) as Record<string, string>;
  const reason = body.detail ?? body.error ?? `the server answered ${response.status}`;
  // An ack says `queue_full` too, so it is a final word on this try, and whoever sent it must know (PROTOCOL §3).
  if (BUSY.has(response.status) && body.status !== "queue_full" && body.code !== "queue_full") {
    const asked = 1000 * (Number(response.headers.get("retry-after")) || 0);
    return new Busy(reason, response.status === 429 ? asked : Math.min(asked, FAILING_PAUSE_MAX_MS));
  }
  return new Refused(reason, body.code ?? body.status ?? "bad_request", response.status, body.path, body);
}

function unreachable(wrong: unknown, signal: AbortSignal): Unreachable {
  if (signal.aborted) return new Unreachable("no answer in time");
  return new Unreachable(wrong instanceof TypeError ? "nobody answers there" : "the connection broke");
}
