/** The sign-in screen, over the whole page: asks for a token, says who issues tokens, and shows errors. */

import { useEffect, useId, useRef } from "preact/hooks";

import { caller } from "../state/storage.ts";
import { attempted, attemptSignIn, declineLink } from "../state/signing.ts";
import { Icon } from "./icon.tsx";

import css from "./sign_in.module.css";

export function SignIn() {
  const box = useRef<HTMLDialogElement>(null);
  const field = useRef<HTMLInputElement>(null);
  const id = useId();
  const { given, isBusy, error, swap } = attempted.value;
  useEffect(() => box.current?.showModal(), []);
  useEffect(() => {
    if (error) field.current?.select();
  }, [error]);
  return (
    <dialog class={css.screen} ref={box} aria-labelledby={`${id}-title`} onCancel={(event) => event.preventDefault()}>
      {swap ? (
        <Swap {...swap} given={given} titleId={`${id}-title`} />
      ) : (
        <form
          class={css.card}
          onSubmit={(event) => {
            event.preventDefault();
            if (!isBusy) void attemptSignIn(field.current?.value ?? "");
          }}
        >
          <img class={css.mark} src="/favicon.svg" alt="" width="40" height="40" />
          <h1 id={`${id}-title`}>Sign in to {location.host}</h1>
          <p>
            {caller ? (
              <>
                You are signed out. Sign in as <strong>{caller}</strong> to continue. Your unsent text is kept in this browser.
              </>
            ) : (
              "This server requires a sign-in. Use the token or link that its operator gave you."
            )}
          </p>
          <label for={`${id}-token`}>Token or link</label>
          <input type="text" name="username" autocomplete="username" defaultValue={caller} hidden />
          <input
            id={`${id}-token`}
            ref={field}
            name="token"
            type="password"
            autocomplete="current-password"
            spellcheck={false}
            autofocus
            defaultValue={given}
            aria-invalid={error !== ""}
            aria-describedby={`${id}-error`}
          />
          <p role="alert" id={`${id}-error`} class={css.wrong}>
            {error && (
              <>
                <Icon name="warn" /> <span>{error}</span>
              </>
            )}
          </p>
          <button type="submit" class="primary" disabled={isBusy}>
            {isBusy ? "Checking…" : "Sign in"}
          </button>
          <details class={css.help}>
            <summary>No token?</summary>
            <p>
              Ask the operator of this server. They create a token with <code>threadcast token NAME --permissions approve</code>, put the lines that it prints into{" "}
              <code>threadcast.toml</code> and start the server again.
            </p>
            <p>You stay signed in for 30 days, in all tabs of this browser, until you sign out.</p>
          </details>
        </form>
      )}
    </dialog>
  );
}

/** Asks whether the link's person should be signed in instead of the present person. */
function Swap({ from, to, given, titleId }: { from: string; to: string; given: string; titleId: string }) {
  const stay = useRef<HTMLButtonElement>(null);
  useEffect(() => stay.current?.focus(), []);
  return (
    <div class={css.card}>
      <img class={css.mark} src="/favicon.svg" alt="" width="40" height="40" />
      <h1 id={titleId}>
        Sign in as {to} instead of {from}?
      </h1>
      <p>
        This page was opened by a link that signs in as <strong>{to}</strong>, and this browser is signed in as <strong>{from}</strong>. If you did not
        expect that, stay: what you write as {to} can be read by the person who made the link.
      </p>
      <button ref={stay} type="button" class="primary" onClick={declineLink}>
        Stay signed in as {from}
      </button>
      <button type="button" onClick={() => void attemptSignIn(given)}>Sign in as {to}</button>
      <p>All tabs of this browser change together. What {from} wrote here is kept for {from}.</p>
    </div>
  );
}
