/** For developers: the log as it comes, where the chat stands, and faults on purpose. */

export function Drawer() {
  return null;
}
