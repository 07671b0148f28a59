/** The dialog with all shortcuts, including the shortcuts of the message box and of the list. */

import { isShortcutsOpen } from "../state/layout.ts";
import { Dialog } from "./dialog.tsx";
import { hasSingleKeys, setSingleKeys } from "./shortcuts.tsx";
import css from "./shortcut_list.module.css";


/** The keys of each action, with alternatives listed separately, and what they do. */
const SHORTCUTS: readonly (readonly [keys: readonly string[], does: string, isSingle: boolean])[] = [
  [["Ctrl K", "/"], "Search the chats", false],
  [["Ctrl Shift O"], "New chat", false],
  [["c"], "Write a message", true],
  [["Enter"], "Send; during an answer, after it", false],
  [["Alt Enter"], "Send after the present step", false],
  [["Ctrl Enter"], "Stop the answer and send now", false],
  [["Shift Enter"], "A new line", false],
  [["↑"], "Edit your last message, if the message box is empty", false],
  [["j", "Alt ↓"], "Next message", false],
  [["k", "Alt ↑"], "Previous message", false],
  [["F2"], "Rename the chat, in the list", false],
  [["t"], "Time travel", true],
  [["d"], "Developer's drawer", true],
  [["Esc"], "Close a panel, return to the present, or stop the answer", false],
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
        Single-letter keys
      </label>
    </Dialog>
  );
}
