/**
 * Handles sign-in, sign-out and the identity of the person, for all tabs of this browser at once (docs/decisions/0028).
 *
 * A page belongs to one person. If another person turns out to be signed in, the page is loaded again with the stored
 * data of that person only.
 */

import { computed, effect, signal } from "@preact/signals";
import { isSignedOut as isUnknown, Refused, type Session } from "threadcast-client";

import { attempt } from "./safe_store.ts";
import { chats, client, connection, isRefused } from "./session.ts";
import { caller, device, person, rememberCaller } from "./storage.ts";
import { carriesToken, holdToken, rememberCookies, token, tokenOfLink } from "./token.ts";
import { NoToken, tokenIn, tokenOfHash } from "./token_text.ts";

/** Null until the server has answered. */
export const session = signal<Session | null>(null);

/** Whether the server requires a sign-in. */
export const isSignedOut = computed(() => isRefused.value || !!connection.value.isSignedOut || !!chats.value.isSignedOut);

/** The last attempt to sign in, by the form or by the link that opened the page. */
export interface Attempt {
  readonly given: string;
  readonly isBusy: boolean;
  /** The reason why the attempt failed, as a sentence; "" if it has not failed. */
  readonly error: string;
  /** A question that the person must answer first: whether the link signs in `to` in place of `from`. */
  readonly swap?: { readonly from: string; readonly to: string } | undefined;
}
export const attempted = signal<Attempt>({ given: tokenOfLink ?? "", isBusy: false, error: "" });

/** Whether the sign-in screen covers the page. */
export const isSigningIn = computed(() => isSignedOut.value || attempted.value.isBusy || attempted.value.error !== "" || !!attempted.value.swap);

/**
 * Signs in with the pasted text. `attempted` reports the error. With `isBusy` the sign-in screen covers the page until
 * the server has answered.
 */
export async function attemptSignIn(pasted: string, isBusy = true): Promise<void> {
  attempted.value = { given: pasted, isBusy, error: "" };
  try {
    const isLoading = await signIn(tokenIn(pasted, location.host));
    if (!isLoading) attempted.value = { given: "", isBusy: false, error: "" };
  } catch (wrong) {
    attempted.value = { given: pasted, isBusy: false, error: wordsOf(wrong) };
  }
}

/**
 * Signs in by the link that opened this page. Any page can open such a link, so if another person is already signed in,
 * nothing changes before the person confirms it. Otherwise the person might write under another name without noticing.
 * If the link belongs to the person who is signed in, the session is renewed while the page stays usable.
 */
async function attemptByLink(given: string): Promise<void> {
  attempted.value = { given, isBusy: carriesToken, error: "" };
  try {
    const to = nameOf(await ask("GET", tokenIn(given, location.host)));
    const from = await ask("GET", null).then(nameOf, () => caller);
    if (from && to && from !== to) attempted.value = { given, isBusy: false, error: "", swap: { from, to } };
    else await attemptSignIn(given, carriesToken || to !== caller);
  } catch (wrong) {
    attempted.value = { given, isBusy: false, error: wordsOf(wrong) };
  }
}

/** Declines the sign-in by the link; the present person stays signed in. */
export function declineLink(): void {
  location.reload();
}

function wordsOf(wrong: unknown): string {
  const message = reasonOf(wrong);
  if (wrong instanceof NoToken) return message;
  if (isUnknown(wrong)) return "The server does not know this token. Check that it is complete, or ask for a new one.";
  if (wrong instanceof Refused) return `The server refuses this page: ${message}.`;
  return `The token could not be checked: ${message}. Try again in a moment.`;
}

/** Unsent data of the person that a sign-out would delete from this browser. */
export interface Kept {
  readonly unsent: number;
  readonly drafts: number;
}

export function kept(): Kept {
  const keys = Array.from({ length: person.length }, (_, at) => person.key(at) ?? "");
  const count = (prefix: string) => keys.filter((key) => key.startsWith(prefix)).length;
  return { unsent: count("threadcast.outbox."), drafts: count("threadcast.draft.") };
}

/** The messages between tabs: another person may be signed in, a sign-out has started, or it is complete. */
type SignInChange = "changed" | "leaving" | "out";
const signInChannel = attempt(() => new BroadcastChannel("threadcast.session"));
if (signInChannel) {
  signInChannel.onmessage = ({ data }: MessageEvent<SignInChange>) => {
    if (data === "out") leave();
    else if (data === "leaving") {
      person.end();
      device.setItem(LEAVING, "yes"); // the other tab's stored values may not be visible here yet
      if (leaving.peek() === null) void goOnLeaving("");
    }
    else void learn();
  };
}

/**
 * Sends the token to the server and continues as the person whom the token identifies. Returns true if the page is
 * loaded again because it belonged to another person. Throws Refused if the server does not know the token, and
 * Unreachable.
 */
async function signIn(given: string): Promise<boolean> {
  const found = await ask("POST", given);
  device.removeItem(LEAVING);
  const isKept = (await ask("GET", null).catch(() => null))?.principal === found.principal;
  const isSame = nameOf(found) === caller || !rememberCaller(nameOf(found));
  rememberCookies(isKept);
  if (isKept) signInChannel?.postMessage("changed" satisfies SignInChange);
  if (!isSame || isKept === carriesToken) {
    // Without cookies the token is passed to the next page in its address, as by a link.
    if (!isKept) location.hash = `token=${encodeURIComponent(given)}`;
    location.reload();
    return true;
  }
  if (!isKept) holdToken(given);
  goOn(found);
  return false;
}

/**
 * The reason why the server could not complete the sign-out. "" while the server is asked; null if there is no
 * sign-out.
 */
export const leaving = signal<string | null>(null);

/** The key of an entry that is stored from a sign-out until the server has removed the cookie. */
const LEAVING = "threadcast.leaving";
const RETRY_FIRST_MS = 1_000;
const RETRY_MAX_MS = 15_000;
let endWait = () => {};

/**
 * Signs out, in all tabs. No script can remove the cookie, so the page asks the server to remove it. Without an answer
 * the page deletes the person's data in this browser, closes its connection, and repeats the request until the server
 * answers, also after a reload.
 */
export async function signOut(): Promise<void> {
  try {
    await endSession();
  } catch (wrong) {
    rememberCaller("");
    person.end();
    device.setItem(LEAVING, "yes");
    signInChannel?.postMessage("leaving" satisfies SignInChange);
    return goOnLeaving(reasonOf(wrong));
  }
  rememberCaller("");
  signInChannel?.postMessage("out" satisfies SignInChange);
  leave();
}

async function endSession(): Promise<void> {
  await client.request("DELETE", "/v1/session", { headers: { "Threadcast-Principal": "" } });
}

/**
 * Repeats the sign-out until the server has answered or a person has signed in since; then the page is loaded again, or
 * continues with a link.
 */
async function goOnLeaving(reason: string): Promise<void> {
  leaving.value = reason;
  client.close(); // no more requests are sent in the person's name
  for (let waitMs = reason ? RETRY_FIRST_MS : 0; device.getItem(LEAVING) !== null; waitMs = Math.min(2 * waitMs || RETRY_FIRST_MS, RETRY_MAX_MS)) {
    await wait(waitMs);
    leaving.value = "";
    try {
      await endSession();
      device.removeItem(LEAVING);
    } catch (wrong) {
      leaving.value = reasonOf(wrong);
    }
  }
  signInChannel?.postMessage("out" satisfies SignInChange);
  if (tokenOfLink === null) return location.replace("/");
  location.hash = `token=${encodeURIComponent(tokenOfLink)}`;
  location.reload();
}

/** Repeats the sign-out now, without waiting for the next attempt. */
export function tryToLeave(): void {
  endWait();
}

function wait(ms: number): Promise<void> {
  return new Promise((done) => {
    const timer = setTimeout(() => endWait(), ms);
    endWait = () => {
      clearTimeout(timer);
      removeEventListener("online", tryToLeave);
      done();
    };
    addEventListener("online", tryToLeave);
  });
}

function reasonOf(wrong: unknown): string {
  return wrong instanceof Error ? wrong.message : String(wrong);
}

/** Deletes the person's stored data, and prevents further storage. */
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

/** Sets the person that the page belongs to; "" on a server without tokens. */
function nameOf({ principal, has_token }: Session): string {
  return has_token ? principal : "";
}

/**
 * Asks the server who is signed in. The request has no header with the page's person, since another person may be
 * signed in by now. `given` is the token to use; null uses only the cookie.
 */
async function ask(method: "GET" | "POST", given?: string | null): Promise<Session> {
  const headers: Record<string, string> = { "Threadcast-Principal": "" };
  if (given !== undefined) headers.Authorization = given === null ? "" : `Bearer ${given}`;
  return (await client.request(method, "/v1/session", { headers })).json() as Promise<Session>;
}

effect(() => {
  if (leaving.value !== null || (!isSignedOut.value && (session.peek() || !chats.value.isLive))) return;
  // Also if the server no longer requires a sign-in, or another person is signed in by now.
  if (!token()) void learn();
});
if (device.getItem(LEAVING) !== null) void goOnLeaving("");
else if (tokenOfLink !== null) void attemptByLink(tokenOfLink);
// A link that is opened in this tab changes only the hash; loaded again, the page treats it like any other link.
addEventListener("hashchange", () => tokenOfHash(location.hash) !== null && location.reload());
addEventListener("pageshow", ({ persisted }) => persisted && void learn());
