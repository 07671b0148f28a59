/**
 * What this browser keeps for the page over a reload. Where it refuses to, nothing throws and `isForgetful` says so.
 *
 * `device` holds what belongs to the browser, such as its colours. `person` holds what belongs to whoever is signed in:
 * each person has keys of their own, so that the next one to sign in here sees neither drafts nor unsent messages of the last.
 */

import { signal } from "@preact/signals";

import { attempt, SafeStore } from "./safe_store.ts";

/** Whether something could not be kept since the page was opened. */
export const isForgetful = signal(false);

const refused = () => {
  isForgetful.value = true;
};

export const device = new SafeStore(() => localStorage, "", refused);

const CALLER = "threadcast.caller";

/** The name of the person that this browser was last signed in as; "" for none, and on a server without tokens. */
export const caller = device.getItem(CALLER) ?? "";

/** Pages that are opened from now on belong to this person. False: the browser did not keep it. */
export function rememberCaller(name: string): boolean {
  if (!name) device.removeItem(CALLER);
  else attempt(() => localStorage.setItem(CALLER, name));
  return (attempt(() => localStorage.getItem(CALLER)) ?? "") === name;
}

/** The person whom other tabs take this browser to belong to by now. */
export function callerNow(): string {
  return device.getItem(CALLER) ?? "";
}

export const person = new SafeStore(() => localStorage, caller && `threadcast@${encodeURIComponent(caller)}/`, refused);
