/** The light or dark theme, as set in the system or chosen by the person and stored in this browser. */

import { effect, signal } from "@preact/signals";

import { device } from "./storage.ts";

export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

const KEY = "threadcast.theme";
const kept = device.getItem(KEY);

export const theme = signal<Theme>(THEMES.find((one) => one === kept) ?? "system");

effect(() => {
  document.documentElement.style.colorScheme = theme.value === "system" ? "" : theme.value;
  if (theme.value === "system") device.removeItem(KEY);
  else device.setItem(KEY, theme.value);
});
