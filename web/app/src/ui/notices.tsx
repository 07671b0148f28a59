/** What went wrong with something that was sent, in the server's own words. */

import { dismiss, notices } from "../state/session.ts";

export function Notices() {
  return (
    <div class="notices" role="alert">
      {notices.value.map(({ id, text }) => (
        <div class="notice" key={id}>
          {text} <button aria-label="Dismiss" onClick={() => dismiss(id)}>×</button>
        </div>
      ))}
    </div>
  );
}
