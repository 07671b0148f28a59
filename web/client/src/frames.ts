/**
 * Parses the bytes of an event stream into frames, wherever the bytes are cut (WHATWG HTML, "Server-sent events").
 *
 * Pure. An unfinished block is no frame, so a connection that breaks in the middle of an event has not delivered the
 * event.
 */

export type Frame =
  | { kind: "event"; data: string; event: string; id: string }
  | { kind: "comment"; text: string }
  | { kind: "retry"; milliseconds: number };

/** The limit for one unfinished block, in UTF-16 units, as in the server's own parser. */
export const FRAME_MAX_LENGTH = 64 * 1024 * 1024;

export class FrameTooLarge extends Error {}

export class FrameParser {
  private readonly text = new TextDecoder(); // drops a byte order mark, as the standard wants
  private rest = "";
  private skipLineFeed = false;
  private data: string[] = [];
  private dataLength = 0;
  private event = "";
  private id = "";

  /** Returns the frames that these bytes complete. Throws FrameTooLarge, after which the caller must reconnect. */
  feed(bytes: Uint8Array): Frame[] {
    const frames: Frame[] = [];
    const chunk = this.text.decode(bytes, { stream: true });
    let start = this.skipLineFeed && chunk.startsWith("\n") ? 1 : 0;
    if (chunk) this.skipLineFeed = chunk.endsWith("\r");
    const lineEnd = /\r\n|\r|\n/g;
    lineEnd.lastIndex = start;
    for (let end = lineEnd.exec(chunk); end; end = lineEnd.exec(chunk)) {
      this.take(this.rest + chunk.slice(start, end.index), frames);
      this.rest = "";
      start = lineEnd.lastIndex;
    }
    this.rest += chunk.slice(start);
    if (this.rest.length + this.dataLength > FRAME_MAX_LENGTH) throw new FrameTooLarge("a frame is too large");
    return frames;
  }

  private take(line: string, frames: Frame[]): void {
    if (line === "") {
      if (this.data.length) {
        frames.push({ kind: "event", data: this.data.join("\n"), event: this.event || "message", id: this.id });
      }
      this.data = [];
      this.dataLength = 0;
      this.event = "";
      return;
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (field === "data") {
      this.data.push(value);
      this.dataLength += value.length;
    } else if (field === "event") this.event = value;
    else if (field === "id" && !value.includes("\0")) this.id = value;
    else if (field === "") frames.push({ kind: "comment", text: value });
    else if (field === "retry" && /^[0-9]{1,9}$/.test(value)) frames.push({ kind: "retry", milliseconds: +value });
  }
}
