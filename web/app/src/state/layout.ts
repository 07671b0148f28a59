/**
 * The parts of the page that are open beside the chat. The page's frame reads these signals; buttons and keys change
 * them.
 */

import { signal } from "@preact/signals";

/**
 * This signal is used only on a narrow screen, where the list slides over the chat; on a wide screen the list is always
 * visible.
 */
export const isSidebarOpen = signal(false);
export const isDrawerOpen = signal(false);
export const isSettingsOpen = signal(false);

export const isShortcutsOpen = signal(false);
/**
 * The width of a phone: below this width the list slides in, and the drawer covers the chat. The style sheets use the
 * same width.
 */
const narrow = matchMedia("(max-width: 45rem)");
export const isNarrow = signal(narrow.matches);
narrow.addEventListener("change", () => {
  isNarrow.value = narrow.matches;
});
