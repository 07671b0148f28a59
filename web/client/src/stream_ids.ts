/**
 * Reads a chat's position from SSE ids (PROTOCOL §4).
 *
 * On a stream of one chat the id is `<epoch>-<position>-<base>`. On a stream of several chats the id has one word for
 * each chat, `<tag>-<epoch>-<position>-<seq>` in base 36. The tag is a hash that is not computed here: the word that
 * differs from the previous id belongs to the chat of the event. Clients send ids back unchanged; they read the
 * position only to display it, and to request a chat at an earlier position.
 */

export class StreamIds {
  private words: ReadonlySet<string> = new Set();

  /** Returns 0 if the position cannot be read. */
  positionOf(id: string): number {
    const single = /^\d+-(\d+)-\d+$/.exec(id);
    if (single) return Number(single[1]);
    const words = new Set(id.split("."));
    const fresh = [...words].filter((word) => !this.words.has(word));
    this.words = words;
    const match = fresh.length === 1 ? /^[0-9a-z]{6}-[0-9a-z]+-([0-9a-z]+)-[0-9a-z]+$/.exec(fresh[0] as string) : null;
    return match ? parseInt(match[1] as string, 36) : 0;
  }

  clear(): void {
    this.words = new Set();
  }
}
