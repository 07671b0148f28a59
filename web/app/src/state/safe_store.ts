/**
 * A `Storage` that never throws. If the browser refuses to store values (storage is blocked, full or missing), they are
 * held in memory until the page is closed. The module is pure: the function that opens the storage is an argument.
 */

/** The methods of `Storage` that this file uses. */
export type Store = Pick<Storage, "getItem" | "setItem" | "removeItem" | "key" | "length">;

/** A store that never throws, for the keys behind `prefix`. */
export class SafeStore implements Store {
  private readonly held = new Map<string, string>();
  private readonly store: Store | null;
  private isEnded = false;

  /**
   * `open` may throw: the getter of `localStorage` throws where a browser blocks the storage. Calls `onRefused` when a
   * value could not be stored.
   */
  constructor(
    open: () => Store,
    private readonly prefix = "",
    private readonly onRefused: () => void = () => {},
  ) {
    this.store = attempt(open);
  }

  get length(): number {
    return this.keys().length;
  }

  key(at: number): string | null {
    return this.keys()[at] ?? null;
  }

  getItem(key: string): string | null {
    const name = this.prefix + key;
    return this.held.get(name) ?? attempt(() => this.store?.getItem(name)) ?? null;
  }

  setItem(key: string, value: string): void {
    if (this.isEnded) return;
    const name = this.prefix + key;
    try {
      if (!this.store) throw new Error("the browser stores nothing");
      this.store.setItem(name, value);
      this.held.delete(name);
    } catch {
      this.held.set(name, value);
      this.onRefused();
    }
  }

  removeItem(key: string): void {
    this.held.delete(this.prefix + key);
    attempt(() => this.store?.removeItem(this.prefix + key));
  }

  /** Removes every key with the prefix, and ignores all later values. */
  end(): void {
    this.isEnded = true;
    for (const key of this.keys()) this.removeItem(key);
  }

  /** Returns whether `name`, the key in a `storage` event, is the key `key` of this store. */
  isNameOf(key: string, name: string | null): boolean {
    return name === this.prefix + key;
  }

  /** Returns the key of this store for the `name` in a `storage` event; null if it is not a key of this store. */
  keyOf(name: string | null): string | null {
    return name?.startsWith(this.prefix) ? name.slice(this.prefix.length) : null;
  }

  private keys(): string[] {
    const { store } = this;
    const kept = attempt(() => Array.from({ length: store?.length ?? 0 }, (_, at) => store?.key(at) ?? "")) ?? [];
    const names = new Set([...kept, ...this.held.keys()]);
    return [...names].filter((name) => name.startsWith(this.prefix)).map((name) => name.slice(this.prefix.length));
  }
}

/** Returns the result of `act`; null if it throws. */
export function attempt<T>(act: () => T): T | null {
  try {
    return act();
  } catch {
    return null;
  }
}
