/**
 * Asks whether sign-out may delete unsent data. The dialog must also work offline, so its code is loaded at the start.
 */

import { useState } from "preact/hooks";

import { signOut, type Kept } from "../state/signing.ts";
import { Dialog } from "../ui/dialog.tsx";
import css from "./sidebar.module.css";

export function ConfirmSignOut({ lost: { unsent, drafts }, onClose }: { lost: Kept; onClose: () => void }) {
  const [isBusy, setBusy] = useState(false);
  const out = async () => {
    setBusy(true);
    await signOut();
  };
  const parts = [counted(unsent, "message has not been sent", "messages have not been sent"), counted(drafts, "draft is not finished", "drafts are not finished")];
  return (
    <Dialog title="Sign out?" onClose={onClose}>
      <p>{parts.filter(Boolean).join(" and ")}. Signing out deletes your data in this browser.</p>
      <div class={css.dialogActions}>
        <button onClick={onClose}>Stay signed in</button>
        <button class="dangerous" disabled={isBusy} autofocus onClick={() => void out()}>
          Sign out and delete
        </button>
      </div>
    </Dialog>
  );
}

function counted(count: number, one: string, many: string): string {
  return count ? `${count} ${count === 1 ? one : many}` : "";
}
