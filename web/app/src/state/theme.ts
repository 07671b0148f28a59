/** Light or dark, as the system says or as a person chose; kept in this browser. */

import { effect, signal } from "@preact/signals";

export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

const KEY = "threadcast.theme";
const kept = localStorage.getItem(KEY);

export const theme = signal<Theme>(THEMES.find((one) => one === kept) ?? "system");

effect(() => {
  document.documentElement.style.colorScheme = theme.value === "system" ? "" : theme.value;
  if (theme.value === "system") localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, theme.value);
});
