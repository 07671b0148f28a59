/**
 * Draws trees into an element, and keeps the parts that have not changed.
 *
 * The last block of an answer changes with every token, but most of the block's content stays the same. So formulas,
 * coloured code, loaded pictures and selected text stay in place. Each tree is compared with the tree that was drawn
 * before, not with the document. Later additions (`replaceContent`, `replaceElement`) stay until the tree of their
 * element changes.
 */

import { isAlike, isSame, type Attribute, type Tree } from "./tree.ts";

/** The addresses that a link or a picture may have. A picture may also be a data address, which `render.ts` checks. */
const ADDRESS = /^(?:https?:|mailto:|tel:|\/(?!\/)|#)/i;
const IMAGE_DATA = /^data:image\/(?:png|jpe?g|webp|gif);base64,/i;

interface Drawn {
  readonly tree: Tree;
  node: Element | Text;
  readonly children: Drawn[];
}

const roots = new WeakMap<Element, Drawn[]>();
const replaced = new WeakSet<Node>();
const substitutes = new WeakMap<Node, Element>();

export function draw(box: Element, trees: readonly Tree[]): void {
  roots.set(box, align(box, roots.get(box) ?? [], trees));
}

/** Changes the content of an element; the new content stays until the element's own tree changes. */
export function replaceContent(element: Element, change: () => void): void {
  replaced.add(element);
  change();
}

/** Shows another element in place of `element` until the tree of `element` changes. */
export function replaceElement(element: Element, other: Element): void {
  substitutes.set(element, other);
  element.replaceWith(other);
}

export function isReplaced(element: Element): boolean {
  return replaced.has(element);
}

function align(parent: Element, old: readonly Drawn[], trees: readonly Tree[]): Drawn[] {
  const drawn = trees.map((tree, at) => {
    const before = old[at];
    if (!before) {
      const made = make(tree);
      parent.appendChild(made.node);
      return made;
    }
    if (isSame(before.tree, tree)) return before;
    return grown(before, tree) ?? exchanged(before, tree);
  });
  for (const { node } of old.slice(trees.length)) present(node).remove();
  return drawn;
}

/** Changes the node to match the new tree, if it can be reused. */
function grown({ tree: before, node, children }: Drawn, tree: Tree): Drawn | null {
  if (node instanceof Text) {
    if (typeof tree !== "string") return null;
    if (tree.startsWith(node.data)) node.appendData(tree.slice(node.data.length));
    else node.data = tree;
    return { tree, node, children };
  }
  if (typeof before === "string" || typeof tree === "string" || replaced.has(node) || substitutes.has(node) || !isAlike(before, tree)) return null;
  return { tree, node, children: align(node, children, tree.children) };
}

function exchanged(before: Drawn, tree: Tree): Drawn {
  const made = make(tree);
  present(before.node).replaceWith(made.node);
  return made;
}

function present(node: Element | Text): Element | Text {
  return substitutes.get(node) ?? node;
}

function make(tree: Tree): Drawn {
  if (typeof tree === "string") return { tree, node: new Text(tree), children: [] };
  const node = document.createElement(tree.tag);
  for (const [name, value] of Object.entries(tree.attributes) as [Attribute, string][]) {
    const mayLead = (name !== "href" && name !== "src" && name !== "data-image") || ADDRESS.test(value) || (name === "src" && IMAGE_DATA.test(value));
    if (mayLead) node.setAttribute(name, value);
  }
  const children = tree.children.map(make);
  node.append(...children.map((child) => child.node));
  return { tree, node, children };
}
