/** Returns a function that starts `load` once. If `load` fails, for example offline, the next call starts it again. */
export function once(load: () => Promise<unknown>): () => void {
  let isStarted = false;
  return () => {
    if (isStarted) return;
    isStarted = true;
    load().catch(() => (isStarted = false));
  };
}
