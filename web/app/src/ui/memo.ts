/** Makes a component that is drawn again only when its properties or the signals that it reads change. */

import { Component, type ComponentChild, type ComponentType } from "preact";

export function memo<P extends object>(draw: (props: P) => ComponentChild): ComponentType<P> {
  return class extends Component<P> {
    override shouldComponentUpdate(next: Readonly<P>): boolean {
      const now = this.props as Record<string, unknown>;
      const then = next as Record<string, unknown>;
      return [...new Set([...Object.keys(now), ...Object.keys(then)])].some((key) => now[key] !== then[key]);
    }

    override render() {
      return draw(this.props);
    }
  };
}
