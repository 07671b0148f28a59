/** The title of a chat as people see it. Pure. */

/** Returns a chat's title; "New chat" for a chat without a title, which the server calls "New Chat" (PROTOCOL §8). */
export function titleOf(title: string | null | undefined): string {
  return title && title !== "New Chat" ? title : "New chat";
}
