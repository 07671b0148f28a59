/** Settings of the open chat and of this page. */

import { isSettingsOpen } from "../state/layout.ts";
import { Dialog } from "../ui/dialog.tsx";

export function Settings() {
  return (
    <Dialog title="Settings" onClose={() => (isSettingsOpen.value = false)}>
      <p>…</p>
    </Dialog>
  );
}
