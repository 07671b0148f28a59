/** Made by `vite.config.ts` from highlight.js: its languages' files by their names, and their names by other names for them. */
declare module "virtual:languages" {
  import type { LanguageFn } from "highlight.js";

  export const files: Readonly<Record<string, () => Promise<{ default: LanguageFn }>>>;
  export const names: Readonly<Record<string, string>>;
}
