/** The sign-in screen, over the whole page: asks for a token, says who gives one, and shows errors. */

import { useEffect, useId, useRef } from "preact/hooks";

import { caller } from "../state/storage.ts";
import { attempted, attemptSignIn } from "../state/signing.ts";
import { Icon } from "./icon.tsx";

import css from "./sign_in.module.css";

export function SignIn() {
  const box = useRef<HTMLDialogElement>(null);
  const field = useRef<HTMLInputElement>(null);
  const id = useId();
  const { given, isBusy, error } = attempted.value;
  useEffect(() => box.current?.showModal(), []);
  useEffect(() => {
    if (error) field.current?.select();
  }, [error]);
  return (
    <dialog class={css.screen} ref={box} aria-labelledby={`${id}-title`} onCancel={(event) => event.preventDefault()}>
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
              You are signed out. Sign in as <strong>{caller}</strong> and go on where you were: what you wrote is kept in this browser.
            </>
          ) : (
            "This server wants to know who you are. Whoever runs it gave you a token, or a link that holds one."
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
            Ask whoever runs this server. They make one with <code>threadcast token NAME</code>, put the lines that it prints into{" "}
            <code>threadcast.toml</code> and start the server again.
          </p>
          <p>You stay signed in for 30 days, in all tabs of this browser, until you sign out.</p>
        </details>
      </form>
    </dialog>
  );
}
