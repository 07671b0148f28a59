/**
 * Who is signed in, sign-in and sign-out, for all tabs of this browser at once (docs/decisions/0028).
 *
 * The rule: a page belongs to one person. Where somebody else turns out to be signed in it is loaded again, with what this
 * browser keeps of that person and nothing else.
 */

import { computed, effect, signal } from "@preact/signals";
import { isSignedOut as isUnknown, Refused, type Session } from "threadcast-client";

import { attempt } from "./safe_store.ts";
import { chats, client, connection, isRefused, notify } from "./session.ts";
import { caller, person, rememberCaller } from "./storage.ts";
import { cameWithToken, holdToken, token, tokenOfLink } from "./token.ts";
import { NoToken, tokenIn } from "./token_text.ts";

/** Null until the server has said it. */
export const session = signal<Session | null>(null);

/** Whether the server wants somebody to sign in. */
export const isSignedOut = computed(() => isRefused.value || !!connection.value.isSignedOut || !!chats.value.isSignedOut);

/** What somebody gave to sign in with, in the form or by the link that opened the page. */
export interface Attempt {
  readonly given: string;
  readonly isBusy: boolean;
  /** A sentence; "" while nothing is wrong. */
  readonly error: string;
  /** What has to be answered first: whether the person `to`, whom a link speaks for, takes the place of `from`. */
  readonly swap?: { readonly from: string; readonly to: string } | undefined;
}
export const attempted = signal<Attempt>({ given: tokenOfLink ?? "", isBusy: false, error: "" });

/** Whether the sign-in screen stands over the page. */
export const isSigningIn = computed(() => isSignedOut.value || attempted.value.isBusy || attempted.value.error !== "" || !!attempted.value.swap);

/** Signs in with what was pasted. What is wrong is told by `attempted`. */
export async function attemptSignIn(pasted: string): Promise<void> {
  attempted.value = { given: pasted, isBusy: true, error: "" };
  try {
    const isLoading = await signIn(tokenIn(pasted, location.host));
    if (!isLoading) attempted.value = { given: "", isBusy: false, error: "" };
  } catch (wrong) {
    attempted.value = { given: pasted, isBusy: false, error: wordsOf(wrong) };
  }
}

/**
 * Signs in by the link that opened this page. Any page can open such a link, so where the browser belongs to somebody else
 * already, nothing is changed before that is confirmed: the person would go on writing under another's name.
 */
async function attemptByLink(given: string): Promise<void> {
  attempted.value = { given, isBusy: true, error: "" };
  try {
    const to = nameOf(await ask("GET", tokenIn(given, location.host)));
    const from = await ask("GET", null).then(nameOf, () => caller);
    if (from && to && from !== to) attempted.value = { given, isBusy: false, error: "", swap: { from, to } };
    else await attemptSignIn(given);
  } catch (wrong) {
    attempted.value = { given, isBusy: false, error: wordsOf(wrong) };
  }
}

/** The link is forgotten. Who was signed in stays so. */
export function declineLink(): void {
  location.reload();
}

function wordsOf(wrong: unknown): string {
  const message = wrong instanceof Error ? wrong.message : String(wrong);
  if (wrong instanceof NoToken) return message;
  if (isUnknown(wrong)) return "The server does not know this token. Check that you copied all of it, or ask for a new one.";
  if (wrong instanceof Refused) return `The server refuses this page: ${message}.`;
  return `The token could not be checked: ${message}. Try again in a moment.`;
}

/** Of the person: what would be lost if all that this browser keeps of them went. */
export interface Kept {
  readonly unsent: number;
  readonly drafts: number;
}

export function kept(): Kept {
  const keys = Array.from({ length: person.length }, (_, at) => person.key(at) ?? "");
  const count = (prefix: string) => keys.filter((key) => key.startsWith(prefix)).length;
  return { unsent: count("threadcast.outbox."), drafts: count("threadcast.draft.") };
}

/** What tabs tell each other: another person may be signed in, or nobody any more. */
type News = "changed" | "out";
const news = attempt(() => new BroadcastChannel("threadcast.session"));
if (news) {
  news.onmessage = ({ data }: MessageEvent<News>) => {
    if (data === "out") leave();
    else void learn();
  };
}

/**
 * Hands the token to the server and goes on as whoever it speaks for: in place if the page is theirs, else the page is
 * loaded again (true). Throws Refused where the server does not know the token, and Unreachable.
 */
async function signIn(given: string): Promise<boolean> {
  const found = await ask("POST", given);
  const isKept = (await ask("GET", null).catch(() => null))?.principal === found.principal;
  const isSame = nameOf(found) === caller || !rememberCaller(nameOf(found));
  if (isKept) news?.postMessage("changed" satisfies News);
  if (isKept ? cameWithToken || !isSame : !cameWithToken || !isSame) {
    // Without cookies the next page is given the token by its address, as by a link.
    if (!isKept) location.hash = `token=${encodeURIComponent(given)}`;
    location.reload();
    return true;
  }
  if (!isKept) holdToken(given);
  goOn(found);
  return false;
}

/** False: the server was not reached, and no script can take the cookie away. */
export async function signOut(): Promise<boolean> {
  try {
    await client.request("DELETE", "/v1/session", { headers: { "Threadcast-Principal": "" } });
  } catch (wrong) {
    notify(`You are still signed in: ${wrong instanceof Error ? wrong.message : String(wrong)}. Try again in a moment.`);
    return false;
  }
  rememberCaller("");
  news?.postMessage("out" satisfies News);
  leave();
  return true;
}

/** Nothing that was kept of the person stays, and nothing more is kept. */
function leave(): void {
  person.end();
  location.replace("/");
}

/** Asks who is signed in. */
export async function learn(): Promise<void> {
  const found = await ask("GET").catch(() => null);
  if (!found) return;
  if (nameOf(found) !== caller && rememberCaller(nameOf(found))) location.reload();
  else goOn(found);
}

function goOn(found: Session): void {
  const wasOut = isSignedOut.peek();
  session.value = found;
  isRefused.value = false;
  if (wasOut) client.retry();
}

/** Whose the page is: on a server without tokens it is nobody's in particular. */
function nameOf({ principal, has_token }: Session): string {
  return has_token ? principal : "";
}

/**
 * Not in the name of whoever the page belongs to, since that may be another by now. `given`: by this token; null: by the
 * cookie alone.
 */
async function ask(method: "GET" | "POST", given?: string | null): Promise<Session> {
  const headers: Record<string, string> = { "Threadcast-Principal": "" };
  if (given !== undefined) headers.Authorization = given === null ? "" : `Bearer ${given}`;
  return (await client.request(method, "/v1/session", { headers })).json() as Promise<Session>;
}

effect(() => {
  if (!isSignedOut.value && (session.peek() || !chats.value.isLive)) return;
  // Also where the server wants nobody to sign in any more, or knows somebody else by now.
  if (!token()) void learn();
});
if (tokenOfLink !== null) void attemptByLink(tokenOfLink);
addEventListener("pageshow", ({ persisted }) => persisted && void learn());
