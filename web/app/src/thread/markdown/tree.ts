/**
 * The tree from which an answer is drawn: elements and texts as plain data. Pure.
 *
 * The tags and attributes below are all that an answer can consist of. No text of a model is ever parsed as HTML, so
 * the text cannot become an element, an attribute or a script.
 */

export type Tag =
  | "a" | "blockquote" | "br" | "button" | "code" | "del" | "details" | "div" | "em" | "figcaption" | "figure" | "hr" | "img" | "input" | "kbd" | "li"
  | "mark" | "ol" | "p" | "pre" | "span" | "strong" | "sub" | "summary" | "sup" | "table" | "tbody" | "td" | "th" | "thead" | "tr" | "u" | "ul"
  | "h1" | "h2" | "h3" | "h4" | "h5" | "h6";

export type Attribute =
  | "align" | "alt" | "aria-label" | "checked" | "class" | "data-copy" | "data-image" | "data-math" | "data-note" | "dir" | "disabled" | "href" | "id"
  | "loading" | "open" | "rel" | "src" | "start" | "tabindex" | "target" | "title" | "type";

export type Attributes = { readonly [name in Attribute]?: string };

export interface Branch {
  readonly tag: Tag;
  readonly attributes: Attributes;
  readonly children: readonly Tree[];
}

/** An element, or a text. */
export type Tree = Branch | string;

export function branch(tag: Tag, attributes: Attributes = {}, children: readonly Tree[] = []): Branch {
  return { tag, attributes, children };
}

export function isSame(one: Tree, other: Tree): boolean {
  if (typeof one === "string" || typeof other === "string") return one === other;
  return isAlike(one, other) && one.children.length === other.children.length && one.children.every((child, at) => isSame(child, other.children[at] as Tree));
}

/**
 * Whether two elements are equal apart from their content. The attribute `open` is ignored, because the reader folds
 * and unfolds `<details>`.
 */
export function isAlike(one: Branch, other: Branch): boolean {
  if (one.tag !== other.tag) return false;
  const names = Object.keys({ ...one.attributes, ...other.attributes }) as Attribute[];
  return names.every((name) => name === "open" || one.attributes[name] === other.attributes[name]);
}

/** Whether the tree contains an element with this tag and this attribute. */
export function holds(trees: readonly Tree[], attribute: Attribute, tag?: Tag): boolean {
  return trees.some((tree) => typeof tree !== "string" && ((tree.attributes[attribute] !== undefined && (!tag || tree.tag === tag)) || holds(tree.children, attribute, tag)));
}
