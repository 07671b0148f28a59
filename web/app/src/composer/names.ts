/** Joins the names of several files into one line. Pure. */

/** Returns one line such as `a, b and 3 more`. */
export function listed(names: readonly string[]): string {
  const [first = "", second = "", ...more] = [...new Set(names)];
  if (!second) return first;
  return more.length ? `${first}, ${second} and ${more.length} more` : `${first} and ${second}`;
}
