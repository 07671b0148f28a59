/** Messages that wait for their turn. */

export function Queue() {
  return null;
}
