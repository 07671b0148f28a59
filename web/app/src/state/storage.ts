/** Stores the page's data in this browser, over reloads. If the browser refuses, nothing throws and `isForgetful` is true.
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

/** The id of the person who was last signed in with this browser; "" for none, and on a server without tokens. */
export const caller = device.getItem(CALLER) ?? "";

/** Pages that are opened from now on belong to this person. False: the browser did not keep it. */
export function rememberCaller(name: string): boolean {
  if (!name) device.removeItem(CALLER);
  else attempt(() => localStorage.setItem(CALLER, name));
  return (attempt(() => localStorage.getItem(CALLER)) ?? "") === name;
}

/** The person that another tab has stored as the browser's present one. */
export function callerNow(): string {
  return device.getItem(CALLER) ?? "";
}

export const person = new SafeStore(() => localStorage, caller && `threadcast@${encodeURIComponent(caller)}/`, refused);
