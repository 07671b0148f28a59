/**
 * Stores the page's data in this browser, over reloads. If the browser refuses to store a value, no function throws,
 * and `isForgetful` becomes true.
 *
 * `device` holds settings of the browser, such as its colours. `person` holds the data of the person who is signed in.
 * Each person has separate keys, so that the next person who signs in here cannot see the drafts and unsent messages of
 * the previous person.
 */

import { signal } from "@preact/signals";

import { attempt, SafeStore } from "./safe_store.ts";

/** Whether a value could not be stored since the page was opened. */
export const isForgetful = signal(false);

const refused = () => {
  isForgetful.value = true;
};

export const device = new SafeStore(() => localStorage, "", refused);

const CALLER = "threadcast.caller";

/** The id of the person who was last signed in with this browser; "" for none, and on a server without tokens. */
export const caller = device.getItem(CALLER) ?? "";

/**
 * Stores the id of the person to whom pages that are opened later belong. Returns false if the browser did not store
 * it.
 */
export function rememberCaller(name: string): boolean {
  if (!name) device.removeItem(CALLER);
  else attempt(() => localStorage.setItem(CALLER, name));
  return (attempt(() => localStorage.getItem(CALLER)) ?? "") === name;
}

export const person = new SafeStore(() => localStorage, caller && `threadcast@${encodeURIComponent(caller)}/`, refused);
