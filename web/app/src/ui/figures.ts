/** Formats times and sizes for people. Pure. */

/** Returns text such as `40 ms`, `4.2 s`, `12 s`, `3 min 5 s` or `1 h 2 min`. */
export function duration(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 9_950) return `${(ms / 1_000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1_000);
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return seconds % 60 ? `${minutes} min ${seconds % 60} s` : `${minutes} min`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** Returns text such as `812 B`, `9.9 kB`, `34 kB` or `1.2 MB`. */
export function size(bytes: number): string {
  if (bytes < 1_000) return `${bytes} B`;
  const [amount, unit] = bytes < 999_500 ? [bytes / 1_000, "kB"] : [bytes / 1_000_000, "MB"];
  return `${amount < 9.95 ? amount.toFixed(1).replace(/\.0$/, "") : Math.round(amount)} ${unit}`;
}
