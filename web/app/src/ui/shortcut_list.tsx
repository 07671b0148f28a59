/** The window of shortcuts, those of the composer and of the list too. */

import { isShortcutsOpen } from "../state/layout.ts";
import { Dialog } from "./dialog.tsx";
import { hasSingleKeys, setSingleKeys } from "./shortcuts.tsx";
import css from "./shortcut_list.module.css";


/** As the window of shortcuts shows them: the keys, each of several ways apart, and what they do. */
const SHORTCUTS: readonly (readonly [keys: readonly string[], does: string, isSingle: boolean])[] = [
  [["Ctrl K", "/"], "Search the chats", false],
  [["Ctrl Shift O"], "New chat", false],
  [["c"], "Write a message", true],
  [["Enter"], "Send; while an answer is under way, in its turn", false],
  [["Alt Enter"], "Next: send after the step that runs now", false],
  [["Ctrl Enter"], "Stop the answer and send at once", false],
  [["Shift Enter"], "A new line", false],
  [["↑"], "Edit your last message, where nothing is written", false],
  [["j", "Alt ↓"], "Next message", false],
  [["k", "Alt ↑"], "Message before", false],
  [["F2"], "Rename the chat, in the list", false],
  [["t"], "Time travel", true],
  [["d"], "Developer's drawer", true],
  [["Esc"], "Close what is open, come back to now, else stop the answer", false],
  [["?"], "These shortcuts", true],
];

export function ShortcutList() {
  return (
    <Dialog title="Keyboard shortcuts" onClose={() => (isShortcutsOpen.value = false)}>
      <dl class={css.shortcuts}>
        {SHORTCUTS.map(([keys, does, isSingle]) => (
          <div key={does} class={isSingle && !hasSingleKeys.value ? css.off : undefined}>
            <dt>{does}</dt>
            <dd>{keys.map((key) => <span key={key}>{key.split(" ").map((part) => <kbd key={part}>{part}</kbd>)}</span>)}</dd>
          </div>
        ))}
      </dl>
      <label class={css.switch}>
        <input
          type="checkbox"
          checked={hasSingleKeys.value}
          onChange={(event) => setSingleKeys(event.currentTarget.checked)}
        />
        Keys of a letter alone
      </label>
    </Dialog>
  );
}
