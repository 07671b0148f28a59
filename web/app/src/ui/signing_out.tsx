/**
 * Takes the place of the page while the server has not answered a sign-out. This screen must work offline, so its code
 * is loaded at the start.
 */

import { leaving, tryToLeave } from "../state/signing.ts";
import css from "./signing_out.module.css";

export function SigningOut() {
  const reason = leaving.value;
  return (
    <main class={css.screen}>
      <h1>{reason ? "You are not signed out yet" : "Signing out…"}</h1>
      <p role="status">
        {reason && (
          <>
            The server did not answer: {reason}. Your data in this browser is deleted, and this page sends nothing more. Only the server can end the session, so the page keeps asking it, also after a reload. Until then do not let others use this browser.
          </>
        )}
      </p>
      {reason && <button type="button" class="primary" onClick={tryToLeave}>Try now</button>}
    </main>
  );
}
