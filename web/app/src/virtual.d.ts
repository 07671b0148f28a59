/** Made by `vite.config.ts` from highlight.js: loaders of the languages by name, and the names by alias. */
declare module "virtual:languages" {
  import type { LanguageFn } from "highlight.js";

  export const files: Readonly<Record<string, () => Promise<{ default: LanguageFn }>>>;
  export const names: Readonly<Record<string, string>>;
}
