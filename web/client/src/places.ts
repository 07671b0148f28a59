/**
 * The position that an SSE id tells for a chat (PROTOCOL §4).
 *
 * On a stream of one chat the id is `<epoch>-<position>-<base>`. On one of several it holds a word for each chat,
 * `<tag>-<epoch>-<position>-<seq>` in base 36, and the tag is a hash that need not be computed here: the word that
 * changed from one id to the next is that of the chat whose event it came with. Clients hand ids back as they are; the
 * position is for showing, and for asking for a chat as it was.
 */

export class Places {
  private words: ReadonlySet<string> = new Set();

  /** 0 when it cannot be told. */
  positionOf(id: string): number {
    const single = /^\d+-(\d+)-\d+$/.exec(id);
    if (single) return Number(single[1]);
    const words = new Set(id.split("."));
    const fresh = [...words].filter((word) => !this.words.has(word));
    this.words = words;
    const place = fresh.length === 1 ? /^[0-9a-z]{6}-[0-9a-z]+-([0-9a-z]+)-[0-9a-z]+$/.exec(fresh[0] as string) : null;
    return place ? parseInt(place[1] as string, 36) : 0;
  }

  clear(): void {
    this.words = new Set();
  }
}
