/** Time travel: the chat as it was at an earlier position. */

export function Past() {
  return null;
}
