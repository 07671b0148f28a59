/**
 * Makes an element show other HTML and keeps what stays the same.
 *
 * The last block of an answer changes with every token, and most of it does not: a formula that is set, code that is
 * coloured, a picture that is loaded and words that are selected stay as they are. An element whose content was
 * replaced after it was made (`replaceContent`) counts as the HTML that it was made from.
 */

const origins = new WeakMap<Node, string>();

/** `html` is clean. */
export function patch(box: Element, html: string): void {
  const template = document.createElement("template");
  template.innerHTML = html;
  align(box, template.content);
}

/** Replaces the content of an element; the new content stays until the element's own HTML changes. */
export function replaceContent(element: Element, change: () => void): void {
  const origin = origins.get(element) ?? element.outerHTML;
  change();
  origins.set(element, origin);
}

export function isReplaced(element: Element): boolean {
  return origins.has(element);
}

function align(box: Node, wanted: Node): void {
  let old = box.firstChild;
  for (let next = wanted.firstChild; next; ) {
    const following: ChildNode | null = next.nextSibling;
    if (!old) box.appendChild(next);
    else {
      const after: ChildNode | null = old.nextSibling;
      if (!isSame(old, next)) {
        if (isAlike(old, next)) grow(old, next);
        else box.replaceChild(next, old);
      }
      old = after;
    }
    next = following;
  }
  while (old) {
    const after: ChildNode | null = old.nextSibling;
    old.remove();
    old = after;
  }
}

function isSame(old: Node, next: Node): boolean {
  const origin = origins.get(old);
  return origin === undefined ? old.isEqualNode(next) : next instanceof Element && next.outerHTML === origin;
}

/** Whether both are the same element, whatever they contain. */
function isAlike(old: Node, next: Node): boolean {
  if (old.nodeName !== next.nodeName || origins.has(old)) return false;
  if (!(old instanceof Element) || !(next instanceof Element)) return true;
  // The reader folds and unfolds `<details>`, so `open` stays.
  const names = new Set([...old.getAttributeNames(), ...next.getAttributeNames()]);
  names.delete("open");
  return [...names].every((name) => old.getAttribute(name) === next.getAttribute(name));
}

function grow(old: ChildNode, next: ChildNode): void {
  if (!(old instanceof Text) || !(next instanceof Text)) align(old, next);
  else if (next.data.startsWith(old.data)) old.appendData(next.data.slice(old.data.length));
  else old.data = next.data;
}
