/** What of the page stands open beside the chat. The frame reads it, the buttons in the bar and the keys write it. */

import { signal } from "@preact/signals";

/** On a narrow screen only: there the list is a drawer above the chat; on a wide one it always stands. */
export const isSidebarOpen = signal(false);
export const isDrawerOpen = signal(false);
export const isSettingsOpen = signal(false);

export const isShortcutsOpen = signal(false);
/** As wide as a phone: the list slides in, and the drawer covers the chat. The sheets have the same measure. */
const narrow = matchMedia("(max-width: 45rem)");
export const isNarrow = signal(narrow.matches);
narrow.addEventListener("change", () => {
  isNarrow.value = narrow.matches;
});
