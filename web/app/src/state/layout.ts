/** What of the page stands open beside the chat. The frame reads it, the buttons in the bar and the keys write it. */

import { signal } from "@preact/signals";

/** On a narrow screen only: there the list is a drawer above the chat; on a wide one it always stands. */
export const isSidebarOpen = signal(false);
export const isDrawerOpen = signal(false);
export const isSettingsOpen = signal(false);
