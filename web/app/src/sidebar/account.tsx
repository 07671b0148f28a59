/** Shows the name of the signed-in person and the sign-out button. Both are shown only on a server with tokens. */

import { signal } from "@preact/signals";

import { kept, session, signOut, type Kept } from "../state/signing.ts";
import { Icon } from "../ui/icon.tsx";

import { ConfirmSignOut } from "./confirm_sign_out.tsx";
import css from "./account.module.css";

/** The unsent data that sign-out would delete, while the dialog asks about it. */
const lost = signal<Kept | null>(null);

export function Account() {
  if (!session.value?.has_token) return null;
  const { principal } = session.value;
  const out = () => {
    const now = kept();
    if (now.unsent || now.drafts) lost.value = now;
    else void signOut();
  };
  return (
    <div class={css.account}>
      <Icon name="person" />
      <span class={css.name} title={`Signed in as ${principal}`}>
        <span class="visually-hidden">Signed in as </span>
        {principal}
      </span>
      <button type="button" onClick={out}>
        Sign out
      </button>
      {lost.value && <ConfirmSignOut lost={lost.value} onClose={() => (lost.value = null)} />}
    </div>
  );
}
